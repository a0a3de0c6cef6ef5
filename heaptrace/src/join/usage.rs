//! How a site uses its blocks: their sizes and lifetimes, how they grow, and what rounding them wastes.
//!
//! Stage: join. These are results, as the totals are: rounded numbers, with standard errors. Knows nothing of how they are
//! counted.

use super::size_classes::Family;

/// A number of events, and bytes that belong to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Events.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The standard error of the number; 0 in an exact run.
    pub count_error: u64,
    /// The standard error of the bytes.
    pub bytes_error: u64,
}

/// The blocks in one bucket of a histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// The number of the bucket, see [`super::histogram`].
    pub index: u8,
    /// The blocks.
    pub blocks: Tally,
}

/// What rounding wastes if the blocks are of one family of allocators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rounding {
    /// The family.
    pub family: Family,
    /// Usable bytes beyond the requested ones, of all blocks.
    pub bytes: u64,
    /// Their standard error.
    pub error: u64,
    /// The part in blocks whose free was not seen.
    pub unfreed: u64,
    /// The parts of size classes, in their order, without those that waste nothing. Empty in files of earlier versions.
    pub classes: Vec<RoundingClass>,
}

/// What rounding wastes in a size class of an allocator, or, above 1 KiB, in neighbouring ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundingClass {
    /// Usable bytes of its smallest blocks.
    pub from: u64,
    /// Usable bytes of its largest blocks.
    pub to: u64,
    /// Its blocks.
    pub blocks: u64,
    /// The bytes that they asked for.
    pub requested: u64,
    /// The usable bytes beyond that.
    pub bytes: u64,
    /// Their standard error.
    pub error: u64,
    /// The part in blocks whose free was not seen.
    pub unfreed: u64,
}

/// How a site uses its blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All blocks by requested bytes, in the order of buckets, without empty ones.
    pub sizes: Vec<Bucket>,
    /// Freed blocks by nanoseconds from their allocation to their free.
    pub lifetimes: Vec<Bucket>,
    /// Freed blocks whose lifetime is not known, because the event of their free was lost.
    pub untimed: Tally,
    /// Blocks that another thread freed than the one that allocated them.
    pub freed_elsewhere: Tally,
    /// Blocks that replaced another recorded block (realloc).
    pub reallocations: Tally,
    /// The part of these whose old block replaced none: each begins a chain.
    pub chains: Tally,
    /// The part of the reallocations that changed the address, with the bytes that were copied for that.
    pub moves: Tally,
    /// What rounding wastes, for each family of allocators that the process has.
    pub rounding: Vec<Rounding>,
}

impl Usage {
    /// The tallies that are no histograms, in the order of the data file.
    pub fn tallies(&self) -> [Tally; 5] {
        [
            self.untimed,
            self.freed_elsewhere,
            self.reallocations,
            self.chains,
            self.moves,
        ]
    }
}
