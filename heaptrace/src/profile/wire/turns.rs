//! The message of a process that was probed in turns.
//!
//! Stage: profile.

use prost::Message;

use crate::join;

/// [`join::Turns`].
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Turns {
    #[prost(uint64, tag = "1")]
    from_ns: u64,
    #[prost(uint64, tag = "2")]
    unprobed_ns: u64,
    #[prost(uint32, tag = "3")]
    overhead: u32,
}

impl From<join::Turns> for Turns {
    fn from(turns: join::Turns) -> Self {
        Self {
            from_ns: turns.from_ns,
            unprobed_ns: turns.unprobed_ns,
            overhead: turns.overhead,
        }
    }
}

impl From<Turns> for join::Turns {
    fn from(turns: Turns) -> Self {
        Self {
            from_ns: turns.from_ns,
            unprobed_ns: turns.unprobed_ns,
            overhead: turns.overhead,
        }
    }
}
