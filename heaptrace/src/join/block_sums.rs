//! Sums over single blocks, for commands that choose blocks one by one.
//!
//! Stage: join. Weighs each block as the counters of sites do. Knows nothing of sites and files.

use super::block_changes::BornBlock;
use super::estimate::{Estimate, Sums};
use super::update::Totals;

/// What became of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockFate {
    /// It is live.
    Live,
    /// Its process had not freed it when it ended.
    Left,
    /// It was freed.
    Freed,
}

/// Sums over some blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockSums(Sums);

impl BlockSums {
    /// Adds a block.
    pub fn add(&mut self, block: &BornBlock, fate: BlockFate) {
        let estimate = Estimate::of(block.size, block.mean);
        self.0.allocated(estimate, block.mean);
        match fate {
            BlockFate::Live => {}
            BlockFate::Left => self.0.leave(estimate),
            BlockFate::Freed => self.0.freed(estimate, false),
        }
    }

    /// Adds other blocks.
    pub fn merge(&mut self, other: &Self) {
        self.0.merge(&other.0);
    }

    /// The sums as counters. Peaks and temporary blocks are not known.
    pub fn totals(&self) -> Totals {
        self.0.totals(&Default::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::StackId;

    fn block(size: u64, mean: u64) -> BornBlock {
        BornBlock {
            id: 1,
            address: 0x1000,
            size,
            stack: StackId(0),
            thread: 1,
            born_ns: 0,
            mean,
            is_reallocated: false,
        }
    }

    /// Check that each block counts once, as what became of it, and that a sampled one stands for others, with an error.
    #[test]
    fn blocks_count_as_what_became_of_them() {
        let mut sums = BlockSums::default();
        sums.add(&block(10, 0), BlockFate::Live);
        sums.add(&block(20, 0), BlockFate::Left);
        sums.add(&block(40, 0), BlockFate::Freed);
        let mut all = sums;
        all.merge(&sums);
        let totals = all.totals();
        let bytes = [
            totals.allocated_bytes,
            totals.live_bytes,
            totals.left_bytes,
            totals.freed_bytes,
        ];
        assert_eq!(bytes, [140, 20, 40, 80]);
        assert_eq!((totals.allocations, totals.live_allocations), (6, 2));
        assert_eq!(totals.errors.live_bytes, 0);

        let mut sampled = BlockSums::default();
        sampled.add(&block(100, 1_000), BlockFate::Live);
        let totals = sampled.totals();
        assert!((900..1_100).contains(&totals.live_bytes), "{totals:?}");
        assert!(totals.errors.live_bytes > 900, "{totals:?}");
        assert_eq!(totals.errors.mean_bytes, 1_000);
    }
}
