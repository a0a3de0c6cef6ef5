//! The reasons why a file could not be read.
//!
//! No stage of the flow. Must not know how a reader is asked.

use std::time::Duration;

use thiserror::Error;

/// Why a file could not be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Unreadable {
    /// It was not opened.
    #[error("{0}")]
    NotOpened(String),
    /// The reader reached the limit of processor time for one file.
    #[error("it takes longer to read than a file may ({} s of a processor)", .0.as_secs())]
    Slow(Duration),
    /// The files of its owner have used up the processor time for that owner.
    #[error(
        "the files of its owner (user {0}) have used all the processor time that there is for reading them"
    )]
    UsedUp(u32),
    /// The reader ran out of memory, or an assertion failed in it.
    #[error("reading it takes more memory than a file may, or fails")]
    Failed,
    /// The file became shorter while it was read.
    #[error("it became shorter while it was read")]
    CutShort,
    /// The reader used no processor time for too long.
    #[error("its reader made no progress for {} s", .0.as_secs())]
    Stuck(Duration),
    /// Another process ended the reader.
    #[error("its reader was ended ({0})")]
    Ended(String),
    /// The answer can't be decoded.
    #[error("its reader gave an invalid answer")]
    Nonsense,
    /// A reader process can't be started.
    #[error("can't start a process to read it: {0}")]
    NoReader(String),
}
