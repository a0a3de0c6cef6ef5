//! Properties that must hold for any bytes in the kernel's rings.
//!
//! Stage: events.

use heaptrace_common::limits::{MAX_FRAMES, MAX_PYTHON_FRAMES, MAX_RAW_WORDS, MAX_V8_FRAMES};

use super::record::{Event, decode};
use super::sideband::{Change, Parsed, parse};

/// A record of the ring is an event of the same size, or an error.
pub(crate) fn ring(data: &[u8]) -> u64 {
    match decode(data) {
        Ok(Event::Stack(head, frames)) => {
            assert!(frames.len() <= MAX_FRAMES);
            assert_eq!(frames.len(), head.depth as usize);
            assert!(frames.len() * 8 < data.len());
            10 + frames.len() as u64
        }
        Ok(Event::PythonFrames(it)) => {
            assert!(it.frames.len() <= MAX_PYTHON_FRAMES);
            assert!(it.frames.len() * 16 < data.len());
            200 + it.frames.len() as u64
        }
        Ok(Event::PythonCode(it)) => {
            // A byte of a string becomes a character of two bytes at most, or of three with the mark of a cut one.
            assert!(it.lines.len() < data.len() && it.name.len() + it.file.len() <= 3 * data.len());
            400 + it.lines.len() as u64
        }
        Ok(Event::RawStack(it)) => {
            assert!(it.words.len() <= MAX_RAW_WORDS);
            assert!(it.words.len() * 8 < data.len());
            20_000 + it.words.len() as u64
        }
        Ok(Event::V8Frames(it)) => {
            assert!(it.frames.len() <= MAX_V8_FRAMES);
            assert!(it.frames.len() * 24 < data.len());
            40_000 + it.frames.len() as u64
        }
        Ok(_) => u64::from(data[0]),
        Err(error) => {
            // Every error has a message.
            assert!(!error.to_string().is_empty());
            0
        }
    }
}

/// A record of the sideband gives no more bytes than it has.
pub(crate) fn sideband(data: &[u8]) -> u64 {
    let event = match parse(data) {
        Parsed::Event(event) => event,
        Parsed::Lost(_) => return 1,
        Parsed::Other => return 0,
    };
    match event.change {
        Change::Forked { parent } => {
            assert_ne!(parent, event.pid);
            2
        }
        Change::Exited => 3,
        Change::Exec { command } => {
            // A byte that is no UTF-8 becomes a character of three bytes.
            assert!(command.len() <= 3 * data.len() && !command.contains('\0'));
            4 + command.len() as u64
        }
        Change::Mapped(mapped) => {
            assert!(mapped.start <= mapped.end);
            assert!(mapped.path.len() <= 3 * data.len() && !mapped.path.contains('\0'));
            1000 + 32 * mapped.path.len() as u64
        }
    }
}
