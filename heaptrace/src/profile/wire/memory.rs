//! The message of a process's resident memory.
//!
//! Stage: profile.

use prost::Message;

use crate::join;

/// [`join::Memory`], as a message.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Memory {
    #[prost(uint64, tag = "1")]
    resident: u64,
    #[prost(uint64, tag = "2")]
    peak_resident: u64,
    #[prost(uint64, tag = "3")]
    resident_before: u64,
}

impl From<join::Memory> for Memory {
    fn from(memory: join::Memory) -> Self {
        Self {
            resident: memory.resident,
            peak_resident: memory.peak_resident,
            resident_before: memory.resident_before,
        }
    }
}

impl From<Memory> for join::Memory {
    fn from(memory: Memory) -> Self {
        Self {
            resident: memory.resident,
            peak_resident: memory.peak_resident,
            resident_before: memory.resident_before,
        }
    }
}
