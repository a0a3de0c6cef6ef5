//! Decodes the records of the kernel program's ring.
//!
//! Stage: events. Turns bytes into one type per kind of record. Joins nothing.

use heaptrace_common::limits::MAX_FRAMES;
use heaptrace_common::wire::{
    Alloc, Free, MapChange, NeedJvm, NeedTable, ProcessBegin, ProcessEnd, StackHead, kind,
};

use super::bytes::{DecodeError, exact, split_list, words};
use super::java::{self, JavaFrames, NamedJavaFrames};
use super::python::{self, PythonFrames};
use super::raw_stack::{self, RawStack};
use super::v8::{self, V8Frames};

/// A record of the kernel program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A block was allocated.
    Alloc(Alloc),
    /// A recorded block was freed.
    Free(Free),
    /// The mappings of a process changed.
    MapChange(MapChange),
    /// A stack that later allocations name.
    Stack(StackHead, Vec<u64>),
    /// A Python code object that later frames name.
    PythonCode(Box<python::PythonCode>),
    /// Python frames that later stacks name.
    PythonFrames(PythonFrames),
    /// Frames of JavaScript that later stacks name.
    V8Frames(V8Frames),
    /// Java frames that later stacks name.
    JavaFrames(JavaFrames),
    /// The same with the names that were read from the process.
    NamedJavaFrames(NamedJavaFrames),
    /// What a later stack lacks.
    RawStack(Box<RawStack>),
    /// A process that later events name.
    ProcessBegin(ProcessBegin),
    /// A process ended, or became another program.
    ProcessEnd(ProcessEnd),
    /// The kernel program needs the unwind table of a file.
    NeedTable(NeedTable),
    /// The kernel program needs the virtual machine of a process.
    NeedJvm(NeedJvm),
}

/// Decodes a record.
pub fn decode(bytes: &[u8]) -> Result<Event, DecodeError> {
    let kind = bytes
        .first_chunk::<2>()
        .map(|bytes| u16::from_ne_bytes(*bytes))
        .ok_or(DecodeError::Size {
            got: bytes.len(),
            want: 2,
        })?;
    match kind {
        kind::ALLOC => exact(bytes).map(Event::Alloc),
        kind::FREE => exact(bytes).map(Event::Free),
        kind::STACK => stack(bytes),
        kind::PROCESS_BEGIN => exact(bytes).map(Event::ProcessBegin),
        kind::PROCESS_END => exact(bytes).map(Event::ProcessEnd),
        kind::MAP_CHANGE => exact(bytes).map(Event::MapChange),
        kind::NEED_TABLE => exact(bytes).map(Event::NeedTable),
        kind::PYTHON_CODE => python::code(bytes).map(|it| Event::PythonCode(Box::new(it))),
        kind::PYTHON_STACK => python::frames(bytes).map(Event::PythonFrames),
        kind::V8_STACK => v8::frames(bytes).map(Event::V8Frames),
        kind::NEED_JVM => exact(bytes).map(Event::NeedJvm),
        kind::JAVA_STACK => java::frames(bytes).map(Event::JavaFrames),
        kind::RAW_STACK => raw_stack::decode(bytes).map(|it| Event::RawStack(Box::new(it))),
        _ => Err(DecodeError::Kind(kind)),
    }
}

fn stack(bytes: &[u8]) -> Result<Event, DecodeError> {
    let (head, frames) = split_list(bytes, size_of::<StackHead>(), MAX_FRAMES, size_of::<u64>())?;
    Ok(Event::Stack(exact(head)?, words(frames)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::bytes::bytes_of;
    use super::*;

    pub(crate) fn free(process: u64, id: u64, flags: u16) -> Free {
        Free {
            kind: kind::FREE,
            flags,
            tid: 2,
            time: 4,
            process,
            id,
        }
    }

    /// Check that a record is decoded as it was sent.
    #[test]
    fn records_are_decoded_as_sent() {
        let free = free(4, 5, 1);
        assert_eq!(decode(&bytes_of(&free)), Ok(Event::Free(free)));
    }

    /// Check that short, long and unknown records give different errors.
    #[test]
    fn other_bytes_are_errors() {
        let bytes = bytes_of(&free(4, 5, 1));
        let longer = [&bytes[..], &[0]].concat();
        for wrong in [&bytes[..31], &longer[..], &bytes[..1], &[]] {
            assert!(matches!(decode(wrong), Err(DecodeError::Size { .. })));
        }
        assert_eq!(decode(&[99, 0]), Err(DecodeError::Kind(99)));
    }

    /// Check that a stack must have as many frames as its head says, and no more than a stack can have.
    #[test]
    fn the_depth_of_stacks_is_checked() {
        let head = |depth| StackHead {
            kind: kind::STACK,
            pad: 0,
            depth,
            time: 0,
            process: 0,
            id: 0,
            walk: 0,
            raw: 0,
            hash: [0; 2],
            language: 0,
            language_frames: [0; 2],
        };
        let mut bytes = bytes_of(&head(2));
        bytes.extend([7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(decode(&bytes), Ok(Event::Stack(head(2), vec![7, 8])));
        bytes.pop();
        assert!(matches!(decode(&bytes), Err(DecodeError::Size { .. })));
        assert_eq!(decode(&bytes_of(&head(129))), Err(DecodeError::Depth(129)));
    }
}
