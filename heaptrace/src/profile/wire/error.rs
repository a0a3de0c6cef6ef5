//! Why a message can't be used.
//!
//! Stage: profile.

use thiserror::Error;

use crate::profile::budget::Exceeded;

/// Why the bytes of a message can't be used.
#[derive(Debug, Error)]
pub(in crate::profile) enum WireError {
    /// They are not a message.
    #[error("undecodable: {0}")]
    Decode(#[from] prost::DecodeError),
    /// They are not a sequence of fields.
    #[error("undecodable")]
    Malformed,
    /// A list is longer than any writer makes it.
    #[error("too many {what}")]
    TooMany {
        /// The elements of the list.
        what: &'static str,
    },
    /// The message needs too much memory.
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
    /// An enumeration has a value that this version does not know.
    #[error("unknown {what} {value}")]
    Unknown {
        /// The enumeration.
        what: &'static str,
        /// The value.
        value: u32,
    },
}
