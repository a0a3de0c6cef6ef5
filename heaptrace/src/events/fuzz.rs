//! Checks that must hold for any bytes in the kernel's ring buffers.
//!
//! Stage: events. For fuzzers only.

use heaptrace_common::limits::MAX_FRAMES;

use super::record::{Event, decode};
use super::sideband::{Change, Parsed, parse};

/// Check that a ring record is either an event of its own size or an error.
pub(crate) fn ring(data: &[u8]) -> u64 {
    match decode(data) {
        Ok(Event::Stack(head, frames)) => {
            assert!(frames.len() <= MAX_FRAMES);
            assert_eq!(frames.len(), head.depth as usize);
            assert!(frames.len() * 8 < data.len());
            10 + frames.len() as u64
        }
        Ok(_) => u64::from(data[0]),
        Err(error) => {
            // Every error has a message.
            assert!(!error.to_string().is_empty());
            0
        }
    }
}

/// Check that a perf record gives no more text than it has bytes.
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
            // A byte that is not UTF-8 becomes a character of three bytes.
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
