//! The smallest and the largest block of a site.
//!
//! Stage: join. Knows nothing of sites.

/// The smallest and the largest requested size of some blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// The smallest.
    pub smallest: u64,
    /// The largest.
    pub largest: u64,
}

impl BlockSizes {
    /// Those of one block.
    pub fn of(size: u64) -> Self {
        Self {
            smallest: size,
            largest: size,
        }
    }

    /// Those of these blocks and others.
    pub fn and(self, other: Self) -> Self {
        Self {
            smallest: self.smallest.min(other.smallest),
            largest: self.largest.max(other.largest),
        }
    }

    /// The size of all blocks, if they have one.
    pub fn same(self) -> Option<u64> {
        (self.smallest == self.largest).then_some(self.smallest)
    }
}
