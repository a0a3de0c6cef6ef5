//! The errors of writing a report.
//!
//! Stage: output.

use std::io;

use thiserror::Error;

/// Why input can't be written.
#[derive(Debug, Error)]
pub enum OutputError {
    /// The writer failed, by a closed pipe or a full disk.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// There is nothing of that.
    #[error("nothing to draw: this profile has no {what}; choose another --metric")]
    Nothing {
        /// What there is nothing of.
        what: &'static str,
    },
    /// The sum of what is to be drawn is beyond 64 bits.
    #[error("can't draw this: its numbers are too large to be true, so the file is damaged")]
    TooLarge,
    /// Its stacks have more text than a drawing can have.
    #[error("can't draw this: its stacks are too long; draw a part of it by --filter")]
    TooMuch,
}
