//! Blocks that nothing in their process points to, by the stack that allocated them.
//!
//! Stage: join. Only runs that look for them hand these out. Must not know how they are found.

use super::ids::{ProcessId, StackId};

/// What a search of a process's memory found. A later search of the process replaces it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reachability {
    /// The process.
    pub process: ProcessId,
    /// When it was stopped, nanoseconds since the run began.
    pub at_ns: u64,
    /// How long it was stopped.
    pub stopped_ns: u64,
    /// Its threads.
    pub threads: u32,
    /// Bytes of its memory in which pointers can be.
    pub memory_bytes: u64,
    /// Bytes that were read while it was stopped.
    pub stopped_bytes: u64,
    /// Bytes that were not read, because they are swapped or belong to a device.
    pub unread_bytes: u64,
    /// Whether all memory was read while it was stopped. Otherwise a part was read before, and everything several times more afterwards.
    pub is_whole: bool,
    /// How often everything was read afterwards.
    pub later_readings: u32,
    /// Whether it has no blocks but the recorded ones. Otherwise memory between these counts as pointing, too.
    pub has_all_blocks: bool,
    /// Recorded blocks that were looked for.
    pub judged_blocks: u64,
    /// Their bytes, without weights.
    pub judged_bytes: u64,
    /// Recorded blocks that were too young to be judged.
    pub young_blocks: u64,
    /// Blocks that nothing pointed to, but that were freed soon afterwards: their program still knew them.
    pub freed_blocks: u64,
    /// Why its memory was not searched; empty if it was.
    pub refused: String,
    /// What nothing points to, by the stack that allocated it.
    pub sites: Vec<UnreachableSite>,
}

/// Blocks of a stack that nothing points to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnreachableSite {
    /// The stack that allocated them.
    pub stack: StackId,
    /// Those that no other unreachable block points to.
    pub direct: UnreachableSum,
    /// Those that only other unreachable blocks point to.
    pub indirect: UnreachableSum,
}

/// Blocks and bytes; estimates in a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnreachableSum {
    /// Blocks.
    pub blocks: u64,
    /// The standard error of their number.
    pub blocks_error: u64,
    /// What the samples stand for beyond themselves.
    pub blocks_unseen: u64,
    /// Bytes.
    pub bytes: u64,
    /// The standard error of the bytes.
    pub bytes_error: u64,
    /// What the samples stand for beyond their own bytes.
    pub bytes_unseen: u64,
    /// The largest mean of bytes between samples under which one was taken; 0 in an exact run.
    pub mean_bytes: u64,
}
