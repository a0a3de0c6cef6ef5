//! Blocks by the conditions on single blocks that they meet, summed by stack.
//!
//! Stage: profile. A filter also has conditions on names, which are known only at the end of a file. So a reading sums blocks by what it
//! can decide about each, and the filter decides about the sums. Knows nothing of filters.

use std::collections::HashMap;
use std::ops::{Bound, RangeBounds as _};

use crate::join::{BlockFate, BlockSums, BornBlock, StackId};

/// A number of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockNumber {
    /// How long it has lived, in nanoseconds: up to its free, to the end of its process, or to the moment that is shown.
    Age,
    /// When it was allocated, nanoseconds since the run began.
    Time,
    /// Its requested bytes.
    Size,
}

/// A condition on a block: one of its numbers is in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCondition {
    /// The number.
    pub number: BlockNumber,
    /// The ends of the range.
    pub range: (Bound<u64>, Bound<u64>),
}

impl BlockCondition {
    /// Most conditions that a reading decides.
    pub const MOST: usize = u64::BITS as usize;

    /// Whether a block meets it that ended at this time.
    fn holds(&self, block: &BornBlock, end_ns: u64) -> bool {
        let number = match self.number {
            BlockNumber::Age => end_ns.saturating_sub(block.born_ns),
            BlockNumber::Time => block.born_ns,
            BlockNumber::Size => block.size,
        };
        self.range.contains(&number)
    }
}

/// Blocks of one stack that meet the same conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockClass {
    /// The stack.
    pub stack: StackId,
    /// A bit for each condition, the lowest for the first: whether they meet it.
    pub met: u64,
    /// Whether they were freed.
    pub is_freed: bool,
    /// Their sums.
    pub sums: BlockSums,
}

/// Sums of the blocks of one program image.
#[derive(Clone, Debug, Default)]
pub(super) struct BlockClasses(HashMap<(StackId, u64, bool), BlockSums>);

impl BlockClasses {
    /// Adds a block that ended at this time, or is looked at then. Returns whether it is the first of its kind.
    pub(super) fn add(
        &mut self,
        conditions: &[BlockCondition],
        block: &BornBlock,
        end_ns: u64,
        fate: BlockFate,
    ) -> bool {
        let bits = (0..).zip(conditions);
        let met = bits.fold(0, |met, (bit, condition)| {
            met | u64::from(condition.holds(block, end_ns)) << bit
        });
        let before = self.0.len();
        let key = (block.stack, met, fate == BlockFate::Freed);
        let sums = self.0.entry(key).or_default();
        sums.add(block, fate);
        self.0.len() > before
    }

    /// The sums, in the order of the stacks.
    pub(super) fn finish(self) -> Vec<BlockClass> {
        let classes = self.0.into_iter();
        let class = |((stack, met, is_freed), sums)| BlockClass {
            stack,
            met,
            is_freed,
            sums,
        };
        let mut classes: Vec<_> = classes.map(class).collect();
        classes.sort_unstable_by_key(|it| (it.stack, it.met, it.is_freed));
        classes
    }
}
