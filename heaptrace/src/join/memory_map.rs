//! What of a process's memory is resident, with the parts that the program mapped itself.
//!
//! Stage: join. Only runs that keep each block hand these out. Knows nothing of blocks.

use super::ids::StackId;
use crate::proc::residency::Residency;

/// The memory of a process at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryMap {
    /// When reading it began, nanoseconds since the run began.
    pub at_ns: u64,
    /// How long reading it took: the process ran on meanwhile.
    pub took_ns: u64,
    /// Its mappings and pages.
    pub residency: Residency,
    /// Memory that the program mapped itself, by address.
    pub mapped: Vec<MappedPart>,
    /// Parts that found no room among these.
    pub mapped_left_out: u64,
}

/// Memory that a program mapped itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedPart {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// The stack that mapped it.
    pub stack: StackId,
}
