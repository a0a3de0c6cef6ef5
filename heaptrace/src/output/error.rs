//! The errors of writing a report.
//!
//! Stage: output.

use std::io;

use thiserror::Error;

/// The reason why a profile can't be written.
#[derive(Debug, Error)]
pub enum OutputError {
    /// The writer failed, for example because of a closed pipe or a full disk.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The profile has no allocations at all.
    #[error(
        "nothing to draw: no allocation was recorded; `heaptrace report` says what was traced, and \
         `heaptrace doctor` what can be"
    )]
    Nothing,
    /// The sum of the values is beyond 64 bits.
    #[error("can't draw this profile: its numbers are impossibly large, so the file is damaged")]
    TooLarge,
    /// The stacks have more text than a drawing can hold.
    #[error("can't draw this profile: its stacks are too long; select a part of it with --filter")]
    TooMuch,
}
