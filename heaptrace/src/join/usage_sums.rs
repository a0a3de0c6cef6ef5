//! Counts how a site uses its blocks, with the weights of a sample.
//!
//! Stage: join. A sampled block with the weight w stands for w blocks, and adds w(w−1) to the variance of their number. Sums are
//! floating-point numbers: whole numbers stay exact up to 2⁵³, so an exact run counts exactly. Knows nothing of other sites.

use heaptrace_common::wire::{Alloc, Free};

use super::block_changes::HowFreed;
use super::blocks::Block;
use super::estimate::weight;
use super::histogram::bucket_of;
use super::rounded_sizes::{RoundedSizes, error, rounded};
use super::size_classes::Family;
use super::usage::{Bucket, Tally, Usage};

/// A free, as far as its event tells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Freeing {
    /// When, nanoseconds on the monotonic clock.
    pub(super) time: u64,
    /// The thread.
    pub(super) tid: u32,
    /// Whether a reallocation replaced the block.
    is_reallocation: bool,
}

impl Freeing {
    /// How the block ended.
    pub(super) fn how(self) -> HowFreed {
        match self.is_reallocation {
            true => HowFreed::Reallocated,
            false => HowFreed::Freed,
        }
    }
}

impl From<&Free> for Freeing {
    fn from(event: &Free) -> Self {
        Self {
            time: event.time,
            tid: event.tid,
            is_reallocation: false,
        }
    }
}

/// The free that is a part of a reallocation.
impl From<&Alloc> for Freeing {
    fn from(event: &Alloc) -> Self {
        Self {
            time: event.time,
            tid: event.tid,
            is_reallocation: true,
        }
    }
}

/// A weighted sum.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    count: f64,
    bytes: f64,
    count_variance: f64,
    bytes_variance: f64,
}

/// The sums of buckets, in their order, without empty ones.
#[derive(Clone, Debug, Default)]
struct Buckets(Vec<(u8, Sum)>);

/// Reallocations, which few sites have.
#[derive(Clone, Copy, Debug, Default)]
struct Growth {
    all: Sum,
    chains: Sum,
    moves: Sum,
}

/// The sums of a site.
#[derive(Clone, Debug, Default)]
pub(super) struct UsageSums {
    sizes: Buckets,
    lifetimes: Buckets,
    untimed: Sum,
    freed_elsewhere: Sum,
    growth: Option<Box<Growth>>,
    rounded: RoundedSizes,
    /// How many events were counted.
    events: u64,
}

impl Sum {
    fn add(&mut self, weight: f64, bytes: u64) {
        let bytes = bytes as f64;
        let variance = weight * (weight - 1.0);
        self.count += weight;
        self.bytes += weight * bytes;
        self.count_variance += variance;
        self.bytes_variance += bytes * bytes * variance;
    }

    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.count_variance += other.count_variance;
        self.bytes_variance += other.bytes_variance;
    }

    fn tally(&self) -> Tally {
        Tally {
            count: rounded(self.count),
            bytes: rounded(self.bytes),
            count_error: error(self.count_variance),
            bytes_error: error(self.bytes_variance),
        }
    }
}

impl Buckets {
    fn of(&mut self, index: u8) -> Option<&mut Sum> {
        let at = match self.0.binary_search_by_key(&index, |it| it.0) {
            Ok(at) => at,
            Err(at) => {
                // Most sites have few buckets, and there can be millions of sites.
                self.0.reserve_exact(1);
                self.0.insert(at, (index, Sum::default()));
                at
            }
        };
        self.0.get_mut(at).map(|it| &mut it.1)
    }

    fn add(&mut self, value: u64, weight: f64, bytes: u64) {
        if let Some(sum) = self.of(bucket_of(value)) {
            sum.add(weight, bytes);
        }
    }

    fn merge(&mut self, other: &Self) {
        for (index, added) in &other.0 {
            if let Some(sum) = self.of(*index) {
                sum.merge(added);
            }
        }
    }

    fn plain(&self) -> Vec<Bucket> {
        let buckets = self.0.iter();
        let buckets = buckets.map(|(index, sum)| Bucket {
            index: *index,
            blocks: sum.tally(),
        });
        buckets.collect()
    }
}

impl UsageSums {
    /// Counts an allocation that was sampled at this mean.
    pub(super) fn allocated(&mut self, size: u64, mean: u64) {
        let weight = weight(size, mean);
        self.events += 1;
        self.sizes.add(size, weight, size);
        self.rounded.allocated(size, weight);
    }

    /// Counts a mapping: it is recorded in every run, and is made of whole pages.
    pub(super) fn mapped(&mut self, length: u64) {
        self.events += 1;
        self.sizes.add(length, 1.0, length);
    }

    /// Counts that a block of this size replaced another one.
    pub(super) fn reallocated(&mut self, size: u64, mean: u64, address: u64, old: &Block) {
        // Only pairs are seen of which both blocks are sampled, independently of each other.
        let weight = weight(size, mean) * weight(old.size, old.mean);
        let growth = self.growth.get_or_insert_default();
        growth.all.add(weight, size);
        if !old.is_reallocated {
            growth.chains.add(weight, size);
        }
        if old.address != address {
            growth.moves.add(weight, size.min(old.size));
        }
    }

    /// Counts the free of a block.
    pub(super) fn freed(&mut self, block: &Block, by: Option<Freeing>) {
        let weight = weight(block.size, block.mean);
        self.events += 1;
        self.rounded.freed(block.size, weight);
        let Some(by) = by else {
            return self.untimed.add(weight, block.size);
        };
        let lived = by.time.saturating_sub(block.time);
        self.lifetimes.add(lived, weight, block.size);
        if by.tid != block.tid {
            self.freed_elsewhere.add(weight, block.size);
        }
    }

    /// Adds the sums of another site.
    pub(super) fn merge(&mut self, other: &Self) {
        self.sizes.merge(&other.sizes);
        self.lifetimes.merge(&other.lifetimes);
        self.untimed.merge(&other.untimed);
        self.freed_elsewhere.merge(&other.freed_elsewhere);
        if let Some(added) = &other.growth {
            let growth = self.growth.get_or_insert_default();
            growth.all.merge(&added.all);
            growth.chains.merge(&added.chains);
            growth.moves.merge(&added.moves);
        }
        self.rounded.merge(&other.rounded);
        self.events += other.events;
    }

    /// How many events were counted.
    pub(super) fn events(&self) -> u64 {
        self.events
    }

    /// The rounded sums, with what rounding wastes in some families.
    pub(super) fn plain(&self, has_family: impl Fn(Family) -> bool) -> Usage {
        let growth = self.growth.as_deref().copied().unwrap_or_default();
        let families = Family::ALL.into_iter();
        Usage {
            sizes: self.sizes.plain(),
            lifetimes: self.lifetimes.plain(),
            untimed: self.untimed.tally(),
            freed_elsewhere: self.freed_elsewhere.tally(),
            reallocations: growth.all.tally(),
            chains: growth.chains.tally(),
            moves: growth.moves.tally(),
            rounding: families
                .filter(|family| has_family(*family))
                .map(|family| self.rounded.of_family(family))
                .collect(),
        }
    }
}
