//! Blocks that were allocated and freed since the last update, one by one.
//!
//! Stage: join. Only runs that keep each block hand these out. Knows nothing of how they are stored.

use super::ids::StackId;
use super::inspected::Inspected;
use super::memory_map::MemoryMap;

/// What happened to the blocks of a program image since the last update. An update can have several of one image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockChanges {
    /// The image that the blocks are of.
    pub owner: BlockOwner,
    /// Whether these are all live blocks, with which a file begins whose run began before it. Then none of them is a change.
    pub is_whole: bool,
    /// The time up to which everything is known, nanoseconds since the run began.
    pub at_ns: u64,
    /// Whether blocks are in it that were allocated and freed between two updates, too.
    pub has_all: bool,
    /// Allocated blocks.
    pub born: Vec<BornBlock>,
    /// Freed blocks: those in `born` or in earlier changes.
    pub freed: Vec<FreedBlock>,
    /// When the image ended, nanoseconds since the run began.
    pub ended_ns: Option<u64>,
    /// What of the memory is resident, if that was read.
    pub memory: Option<MemoryMap>,
    /// What the memory of live blocks tells of their types, if it was read. Blocks can be in `freed` that ended since.
    pub inspected: Option<Inspected>,
}

/// One program image of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockOwner {
    /// A number that no other image of the run has.
    pub serial: u64,
    /// Its process id.
    pub pid: u32,
    /// When the process started, nanoseconds on the boot clock.
    pub start_time_ns: u64,
    /// Its name; raw, to be escaped by every output.
    pub command: String,
}

/// An allocated block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BornBlock {
    /// A number that no other block of the run has.
    pub id: u64,
    /// Its address.
    pub address: u64,
    /// Requested bytes.
    pub size: u64,
    /// The stack that allocated it.
    pub stack: StackId,
    /// The thread that allocated it.
    pub thread: u32,
    /// When, nanoseconds since the run began.
    pub born_ns: u64,
    /// The mean bytes between samples when it was sampled; 0 if every allocation was recorded.
    pub mean: u64,
    /// Whether a reallocation made it from another recorded block.
    pub is_reallocated: bool,
}

/// How a block ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HowFreed {
    /// It was freed.
    Freed,
    /// It was replaced by a reallocation.
    Reallocated,
    /// Its free was not seen, but its address was used again or the kernel program had marked it.
    Unseen,
}

/// The end of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreedBlock {
    /// The block.
    pub id: u64,
    /// How.
    pub how: HowFreed,
    /// When, nanoseconds since the run began; 0 if it was not seen.
    pub freed_ns: u64,
    /// The thread that freed it; 0 if that was not seen.
    pub thread: u32,
}
