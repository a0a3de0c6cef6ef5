//! Decodes the records of Java frames, and holds them with their names.
//!
//! Stage: events. The names come from the traced process.

use heaptrace_common::limits::MAX_JAVA_FRAMES;
use heaptrace_common::wire::{JavaFrame, JavaStack};

use super::bytes::{DecodeError, split_list, words};
use crate::hotspot::Named;

/// The Java frames of stacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JavaFrames {
    /// Serial number of the process record.
    pub process: u64,
    /// The id that stacks name.
    pub id: u64,
    /// Innermost first.
    pub frames: Vec<JavaFrame>,
}

/// The same with names, which are read from the process when its record arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedJavaFrames {
    /// Serial number of the process record.
    pub process: u64,
    /// The id that stacks name.
    pub id: u64,
    /// The id of frames further in, which belong to the same stacks and have arrived before.
    pub after: Option<u64>,
    /// Innermost first.
    pub frames: Vec<Named>,
}

/// Decodes the Java frames of stacks.
pub(super) fn frames(bytes: &[u8]) -> Result<JavaFrames, DecodeError> {
    let head = std::mem::offset_of!(JavaStack, frames);
    let each = size_of::<JavaFrame>();
    let (head, list) = split_list(bytes, head, MAX_JAVA_FRAMES, each)?;
    let [_, process, id] = words(head)[..] else {
        return Err(DecodeError::Size {
            got: bytes.len(),
            want: head.len(),
        });
    };
    let frame = |&[code, place]: &[u64; 2]| JavaFrame { code, place };
    Ok(JavaFrames {
        process,
        id,
        frames: words(list).as_chunks::<2>().0.iter().map(frame).collect(),
    })
}

#[cfg(test)]
mod tests {
    use heaptrace_common::wire::kind;

    use super::*;

    /// Check that Java frames are decoded as they were sent, and that their number must be that of the record.
    #[test]
    fn java_frames_are_decoded_as_sent() {
        let bytes = |depth: u64, words: &[u64]| -> Vec<u8> {
            let head = [u64::from(kind::JAVA_STACK) | depth << 32, 5, 6];
            let words = head.iter().chain(words);
            words.flat_map(|word| word.to_ne_bytes()).collect()
        };
        let expected = JavaFrames {
            process: 5,
            id: 6,
            frames: vec![
                JavaFrame { code: 1, place: 2 },
                JavaFrame { code: 3, place: 4 },
            ],
        };
        assert_eq!(frames(&bytes(2, &[1, 2, 3, 4])), Ok(expected));
        for (depth, words) in [(2, &[1, 2, 3][..]), (1, &[1, 2, 3, 4]), (3, &[1, 2, 3, 4])] {
            assert!(frames(&bytes(depth, words)).is_err(), "{depth}");
        }
        assert_eq!(frames(&bytes(129, &[])), Err(DecodeError::Depth(129)));
    }
}
