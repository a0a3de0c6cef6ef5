//! What the memory of live blocks tells of their types.
//!
//! Stage: join. Only runs that inspect live blocks hand these out. Knows nothing of how memory is read.

use super::ids::StackId;

/// A live block that is to be inspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// A number that no other block of the run has.
    pub id: u64,
    /// Its address.
    pub address: u64,
    /// Requested bytes.
    pub size: u64,
    /// The stack that allocated it.
    pub stack: StackId,
}

/// The inspected blocks of a program image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspected {
    /// When they were inspected, nanoseconds since the run began.
    pub at_ns: u64,
    /// Blocks whose memory was read.
    pub read: u64,
    /// Blocks whose memory was not read, for lack of time or because it was gone.
    pub unread: u64,
    /// The names of classes; raw, to be escaped by every output.
    pub classes: Vec<String>,
    /// The blocks that begin with an object of a known class, in the order of their ids: the id, and the index of the class.
    pub blocks: Vec<(u64, u32)>,
    /// The blocks of each stack by class.
    pub stacks: Vec<InspectedStack>,
}

/// Inspected blocks of one stack and one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InspectedStack {
    /// The stack.
    pub stack: StackId,
    /// The index of the class; `None` if no class is known.
    pub class: Option<u32>,
    /// How many blocks.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The smallest size.
    pub smallest: u64,
    /// The largest size.
    pub largest: u64,
}
