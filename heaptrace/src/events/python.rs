//! Decodes the records of Python frames and code objects.
//!
//! Stage: events. The strings and the tables of lines in them come from the traced process.

use heaptrace_common::limits::MAX_PYTHON_FRAMES;
use heaptrace_common::wire::{PythonFrame, PythonStack};

use super::bytes::{DecodeError, exact, split_list, words};
use crate::python;

/// The part of a record before its table of lines.
type Head = heaptrace_common::wire::PythonCode<0>;

/// A code object: a function of Python, or the code of a module or a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonCode {
    /// Serial number of the process record.
    pub process: u64,
    /// Its address.
    pub code: u64,
    /// Tells it apart from others that were at this address.
    pub cookie: u32,
    /// The minor version of the interpreter.
    pub minor: u16,
    /// Its first line.
    pub first_line: i32,
    /// Its name; raw, empty if it could not be read.
    pub name: String,
    /// The path of its source file; raw, empty if it could not be read.
    pub file: String,
    /// The beginning of its table of lines, in the format of the version.
    pub lines: Vec<u8>,
}

/// The Python frames of stacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonFrames {
    /// Serial number of the process record.
    pub process: u64,
    /// The id that stacks name.
    pub id: u64,
    /// Innermost first.
    pub frames: Vec<PythonFrame>,
}

/// Decodes a code object.
pub(super) fn code(bytes: &[u8]) -> Result<PythonCode, DecodeError> {
    let too_short = |want| DecodeError::Size {
        got: bytes.len(),
        want,
    };
    let (head, lines) = bytes
        .split_at_checked(size_of::<Head>())
        .ok_or_else(|| too_short(size_of::<Head>()))?;
    let head: Head = exact(head)?;
    let length = head.lines_bytes as usize;
    let lines = lines
        .get(..length)
        .ok_or_else(|| too_short(size_of::<Head>().saturating_add(length)))?;
    Ok(PythonCode {
        process: head.process,
        code: head.code,
        cookie: head.cookie,
        minor: head.minor,
        first_line: head.first_line,
        name: python::text(&head.name),
        file: python::text(&head.file),
        lines: lines.to_vec(),
    })
}

/// Decodes the Python frames of stacks.
pub(super) fn frames(bytes: &[u8]) -> Result<PythonFrames, DecodeError> {
    let head = std::mem::offset_of!(PythonStack, frames);
    let each = size_of::<PythonFrame>();
    let (head, list) = split_list(bytes, head, MAX_PYTHON_FRAMES, each)?;
    let [_, process, id] = words(head)[..] else {
        return Err(DecodeError::Size {
            got: bytes.len(),
            want: head.len(),
        });
    };
    let frame = |&[code, place]: &[u64; 2]| PythonFrame { code, place };
    Ok(PythonFrames {
        process,
        id,
        frames: words(list).as_chunks::<2>().0.iter().map(frame).collect(),
    })
}

#[cfg(test)]
mod tests {
    use heaptrace_common::wire::{PythonText, kind};

    use super::super::bytes::bytes_of;
    use super::*;

    fn text<const BYTES: usize>(text: &str) -> PythonText<BYTES> {
        let mut bytes = [0; BYTES];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        PythonText {
            width: 1,
            characters: text.len() as u32,
            bytes,
        }
    }

    /// Check that a code object is decoded as it was sent, with a short and a long record, and that one whose table of lines
    /// is longer than the record is refused.
    #[test]
    fn code_objects_are_decoded_as_sent() {
        let head = |lines_bytes| Head {
            kind: kind::PYTHON_CODE,
            minor: 11,
            cookie: 7,
            process: 3,
            code: 0x7000,
            first_line: 12,
            lines_bytes,
            name: text("Server.handle"),
            file: text("/srv/app.py"),
            lines: [],
        };
        for room in [4, 512] {
            let mut bytes = bytes_of(&head(3));
            bytes.extend([1, 2, 3]);
            bytes.resize(size_of::<Head>() + room, 0xff);
            let decoded = code(&bytes).unwrap();
            assert_eq!(
                (decoded.process, decoded.code, decoded.cookie),
                (3, 0x7000, 7)
            );
            assert_eq!((decoded.minor, decoded.first_line), (11, 12));
            assert_eq!(decoded.name, "Server.handle");
            assert_eq!(decoded.file, "/srv/app.py");
            assert_eq!(decoded.lines, [1, 2, 3]);
        }
        let bytes = bytes_of(&head(1));
        assert!(matches!(code(&bytes), Err(DecodeError::Size { .. })));
        assert!(matches!(code(&bytes[..40]), Err(DecodeError::Size { .. })));
    }

    /// Check that Python frames are decoded as they were sent, and that their number must be that of the record.
    #[test]
    fn python_frames_are_decoded_as_sent() {
        let bytes = |depth: u64, words: &[u64]| -> Vec<u8> {
            let head = [u64::from(kind::PYTHON_STACK) | depth << 32, 5, 6];
            let words = head.iter().chain(words);
            words.flat_map(|word| word.to_ne_bytes()).collect()
        };
        let expected = PythonFrames {
            process: 5,
            id: 6,
            frames: vec![
                PythonFrame { code: 1, place: 2 },
                PythonFrame { code: 3, place: 4 },
            ],
        };
        assert_eq!(frames(&bytes(2, &[1, 2, 3, 4])), Ok(expected));
        for (depth, words) in [(2, &[1, 2, 3][..]), (1, &[1, 2, 3, 4]), (3, &[1, 2, 3, 4])] {
            assert!(frames(&bytes(depth, words)).is_err(), "{depth}");
        }
        assert_eq!(frames(&bytes(129, &[])), Err(DecodeError::Depth(129)));
    }
}
