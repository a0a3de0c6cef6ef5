//! The errors of writing a report.
//!
//! Stage: output.

use std::io;

use thiserror::Error;

use crate::text;

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
    /// The format has a line for each block, and there are too many.
    #[error(
        "this format has a line for each of the {} allocations, and at most {} can be written; select a part of them \
         with --filter, or use another format",
        text::count(*blocks),
        text::count(*most)
    )]
    TooManyBlocks {
        /// The blocks of the profile.
        blocks: u64,
        /// The most that are written.
        most: u64,
    },
    /// The format holds each block from its allocation on.
    #[error(
        "this format holds each block from its allocation on, so it can't hold a part of a run with older blocks: leave out --from"
    )]
    WithoutBeginning,
    /// The format holds one process, and there are several.
    #[error(
        "this format holds one process, and the profile has several; choose one with --filter pid=PID or process=NAME. The largest: {0}"
    )]
    SeveralProcesses(String),
}
