//! A live block, unpacked.
//!
//! Stage: join.

use crate::join::update::SiteId;

/// A block that was allocated and not freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::join) struct Block {
    pub(in crate::join) site: SiteId,
    pub(in crate::join) address: u64,
    pub(in crate::join) size: u64,
    /// The mean bytes between samples when it was sampled.
    pub(in crate::join) mean: u64,
    /// How many times its process had been paused when it was allocated.
    pub(in crate::join) pauses: u32,
    /// When it was allocated, nanoseconds on the monotonic clock; [`Blocks`](super::Blocks) round it down to 128.
    pub(in crate::join) time: u64,
    /// The thread that allocated it.
    pub(in crate::join) tid: u32,
    /// Whether it replaced another recorded block.
    pub(in crate::join) is_reallocated: bool,
    /// The number of the mark after which it was allocated; 0 before the first.
    pub(in crate::join) mark: u32,
}
