//! Decodes the records of frames of JavaScript.
//!
//! Stage: events. What the frames point to is in the memory of the process.

use heaptrace_common::limits::MAX_V8_FRAMES;
use heaptrace_common::wire::{V8Frame, V8Stack};

use super::bytes::{DecodeError, split_list, words};

/// The frames of JavaScript of stacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct V8Frames {
    /// Serial number of the process record.
    pub process: u64,
    /// The id that stacks name.
    pub id: u64,
    /// Process id.
    pub pid: u32,
    /// The version of V8.
    pub version: u32,
    /// Innermost first.
    pub frames: Vec<V8Frame>,
}

/// Decodes the frames of JavaScript of stacks.
pub(super) fn frames(bytes: &[u8]) -> Result<V8Frames, DecodeError> {
    let head = std::mem::offset_of!(V8Stack, frames);
    let (head, list) = split_list(bytes, head, MAX_V8_FRAMES, size_of::<V8Frame>())?;
    let [_, process, id, origin] = words(head)[..] else {
        return Err(DecodeError::Size {
            got: bytes.len(),
            want: head.len(),
        });
    };
    let frame = |&[shared, code, place]: &[u64; 3]| V8Frame {
        shared,
        code,
        place,
    };
    Ok(V8Frames {
        process,
        id,
        pid: origin as u32,
        version: (origin >> 32) as u32,
        frames: words(list).as_chunks::<3>().0.iter().map(frame).collect(),
    })
}

#[cfg(test)]
mod tests {
    use heaptrace_common::wire::kind;

    use super::*;

    /// Check that frames of JavaScript are decoded as they were sent, and that their number must be that of the record.
    #[test]
    fn frames_are_decoded_as_sent() {
        let bytes = |depth: u64, words: &[u64]| -> Vec<u8> {
            let head = [u64::from(kind::V8_STACK) | depth << 32, 5, 6, 7 | 8 << 32];
            let words = head.iter().chain(words);
            words.flat_map(|word| word.to_ne_bytes()).collect()
        };
        let frame = |shared, code, place| V8Frame {
            shared,
            code,
            place,
        };
        let expected = V8Frames {
            process: 5,
            id: 6,
            pid: 7,
            version: 8,
            frames: vec![frame(1, 2, 3), frame(4, 5, 6)],
        };
        assert_eq!(frames(&bytes(2, &[1, 2, 3, 4, 5, 6])), Ok(expected));
        for (depth, words) in [(2, &[1, 2, 3][..]), (1, &[1, 2, 3, 4]), (0, &[1])] {
            assert!(frames(&bytes(depth, words)).is_err(), "{depth}");
        }
        assert_eq!(frames(&bytes(129, &[])), Err(DecodeError::Depth(129)));
    }
}
