//! The estimate that a sample stands for, and sums of estimates.
//!
//! Stage: join. An allocation of S bytes that is sampled with the probability p stands for 1/p allocations
//! and S/p bytes. It adds (1−p)/p² and S²(1−p)/p² to the variances of the sums. Each sample is computed by
//! itself, and the sums are integers, so a free takes off exactly what its allocation added.

use std::ops::{AddAssign, SubAssign};

use heaptrace_common::sampling;

use super::update::{Errors, OwnPeak, Totals, Unseen};

/// Bits after the binary point of every fixed-point number here.
const POINT: u32 = 32;

/// An estimated number, with its variance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    value: u128,
    variance: u128,
    /// The part of the value that was seen: the samples themselves.
    seen: u64,
}

impl Amount {
    fn exactly(value: u64) -> Self {
        Self {
            value: u128::from(value) << POINT,
            variance: 0,
            seen: value,
        }
    }

    /// The number, as an integer.
    pub(super) fn rounded(&self) -> u64 {
        rounded(self.value)
    }

    /// What the samples stand for beyond themselves.
    fn unseen(&self) -> u64 {
        rounded(self.value.saturating_sub(u128::from(self.seen) << POINT))
    }

    /// Its standard error, rounded up: an uncertain number never looks exact.
    fn error(&self) -> u64 {
        (self.variance as f64 / (1_u64 << POINT) as f64)
            .sqrt()
            .ceil() as u64
    }

    /// The bytes at a peak.
    pub(super) fn as_peak(&self) -> OwnPeak {
        OwnPeak {
            bytes: self.rounded(),
            error: self.error(),
            unseen: self.unseen(),
        }
    }

    /// Whether another number is larger.
    pub(super) fn is_below(&self, other: &Self) -> bool {
        self.value < other.value
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        self.value = self.value.saturating_add(other.value);
        self.variance = self.variance.saturating_add(other.variance);
        self.seen = self.seen.saturating_add(other.seen);
    }
}

impl SubAssign for Amount {
    fn sub_assign(&mut self, other: Self) {
        self.value = self.value.saturating_sub(other.value);
        self.variance = self.variance.saturating_sub(other.variance);
        self.seen = self.seen.saturating_sub(other.seen);
    }
}

/// An estimated number of allocations, and of their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Estimate {
    count: Amount,
    pub(super) bytes: Amount,
}

impl Estimate {
    /// What an allocation stands for that was sampled at this mean. At a mean of 1, every allocation is
    /// sampled.
    pub(super) fn of(size: u64, mean: u64) -> Self {
        if mean <= 1 {
            return Self::of_part(size, true);
        }
        let points = sampling::span(size) as f64 / mean as f64;
        let weight = weight(size, mean);
        let variance = (-points).exp() * weight * weight;
        let bytes = size as f64;
        Self {
            count: Amount {
                value: fixed(weight),
                variance: fixed(variance),
                seen: 1,
            },
            bytes: Amount {
                value: fixed(bytes * weight),
                variance: fixed(bytes * bytes * variance),
                seen: size,
            },
        }
    }

    /// The number of allocations.
    pub(super) fn count(&self) -> &Amount {
        &self.count
    }

    /// Some bytes of an allocation that is always recorded. The allocation itself counts with its last bytes.
    pub(super) fn of_part(bytes: u64, is_last: bool) -> Self {
        Self {
            count: Amount::exactly(u64::from(is_last)),
            bytes: Amount::exactly(bytes),
        }
    }
}

impl AddAssign for Estimate {
    fn add_assign(&mut self, other: Self) {
        self.count += other.count;
        self.bytes += other.bytes;
    }
}

impl SubAssign for Estimate {
    fn sub_assign(&mut self, other: Self) {
        self.count -= other.count;
        self.bytes -= other.bytes;
    }
}

/// How many allocations one stands for that was sampled at this mean.
pub fn weight(size: u64, mean: u64) -> f64 {
    if mean <= 1 {
        return 1.0;
    }
    let points = sampling::span(size) as f64 / mean as f64;
    // Not 1 − exp(−points): with few points, that would lose its digits.
    -1.0 / (-points).exp_m1()
}

/// A non-negative number in fixed point. A number that is too large becomes the largest one.
fn fixed(value: f64) -> u128 {
    (value * (1_u64 << POINT) as f64).round() as u128
}

/// A fixed-point number, as an integer.
fn rounded(number: u128) -> u64 {
    let half = 1 << (POINT - 1);
    u64::try_from(number.saturating_add(half) >> POINT).unwrap_or(u64::MAX)
}

/// Sums over the allocations of a site, of a process or of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    allocated: Estimate,
    /// Allocations whose free was not seen, including those whose free may have been missed.
    live: Estimate,
    /// The part of `live` whose free may have been missed.
    uncertain: Estimate,
    /// The part of `live` that was certainly live when its process ended.
    left: Estimate,
    temporary: Estimate,
    /// The largest mean under which a sample was taken, 0 if none was needed. A free does not lower it: other blocks from that time may be live that
    /// were not sampled.
    mean: u64,
}

impl Sums {
    /// Adds an allocation that was sampled at this mean.
    pub(super) fn allocated(&mut self, block: Estimate, mean: u64) {
        self.mean = self.mean.max(mean);
        self.allocated += block;
        self.live += block;
    }

    /// Takes off an allocation that was freed.
    pub(super) fn freed(&mut self, block: Estimate, temporary: bool) {
        self.live -= block;
        if temporary {
            self.temporary += block;
        }
    }

    /// Takes off an uncertain allocation that was freed for certain.
    pub(super) fn proven_freed(&mut self, block: Estimate) {
        self.live -= block;
        self.uncertain -= block;
    }

    /// Makes live allocations uncertain.
    pub(super) fn doubt(&mut self, blocks: Estimate) {
        self.uncertain += blocks;
    }

    /// Makes live allocations ones that their process left when it ended.
    pub(super) fn leave(&mut self, blocks: Estimate) {
        self.left += blocks;
    }

    /// Makes memory that its process left live again, because its free becomes known.
    pub(super) fn reclaim(&mut self, blocks: Estimate) {
        self.left -= blocks;
    }

    /// Adds other sums.
    pub(super) fn merge(&mut self, other: &Self) {
        self.allocated += other.allocated;
        self.live += other.live;
        self.uncertain += other.uncertain;
        self.left += other.left;
        self.temporary += other.temporary;
        self.mean = self.mean.max(other.mean);
    }

    /// The allocations that are certainly live.
    pub(super) fn live(&self) -> Estimate {
        let mut certain = self.live;
        certain -= self.uncertain;
        certain -= self.left;
        certain
    }

    /// The bytes that are certainly not freed, also if their process has ended.
    pub(super) fn held(&self) -> u64 {
        let held = self.live.bytes.rounded();
        held.saturating_sub(self.uncertain.bytes.rounded())
    }

    /// The sums as counters, with a peak that the caller knows.
    pub(super) fn totals(&self, peak: &Amount) -> Totals {
        let mut freed = self.allocated;
        freed -= self.live;
        let live = self.live();
        let (allocations, unfreed) = (self.allocated.count.rounded(), self.live.count.rounded());
        let (allocated_bytes, unfreed_bytes) =
            (self.allocated.bytes.rounded(), self.live.bytes.rounded());
        let uncertain_allocations = self.uncertain.count.rounded();
        let uncertain_bytes = self.uncertain.bytes.rounded();
        let (left_allocations, left_bytes) = (self.left.count.rounded(), self.left.bytes.rounded());
        // By subtraction, so that the rounded numbers add up, too.
        let frees = allocations.saturating_sub(unfreed);
        Totals {
            allocations,
            allocated_bytes,
            frees,
            freed_bytes: allocated_bytes.saturating_sub(unfreed_bytes),
            live_allocations: unfreed
                .saturating_sub(uncertain_allocations)
                .saturating_sub(left_allocations),
            live_bytes: unfreed_bytes
                .saturating_sub(uncertain_bytes)
                .saturating_sub(left_bytes),
            left_allocations,
            left_bytes,
            uncertain_allocations,
            uncertain_bytes,
            peak_live_bytes: peak.rounded(),
            // All of them were freed: rounding must not make them more than the frees.
            temporary_allocations: self.temporary.count.rounded().min(frees),
            errors: Errors {
                allocations: self.allocated.count.error(),
                allocated_bytes: self.allocated.bytes.error(),
                frees: freed.count.error(),
                freed_bytes: freed.bytes.error(),
                live_allocations: live.count.error(),
                live_bytes: live.bytes.error(),
                left_allocations: self.left.count.error(),
                left_bytes: self.left.bytes.error(),
                peak_live_bytes: peak.error(),
                temporary_allocations: self.temporary.count.error(),
                unseen: Unseen {
                    allocations: self.allocated.count.unseen(),
                    allocated_bytes: self.allocated.bytes.unseen(),
                    frees: freed.count.unseen(),
                    freed_bytes: freed.bytes.unseen(),
                    live_allocations: live.count.unseen(),
                    live_bytes: live.bytes.unseen(),
                    left_allocations: self.left.count.unseen(),
                    left_bytes: self.left.bytes.unseen(),
                    peak_live_bytes: peak.unseen(),
                    temporary_allocations: self.temporary.count.unseen(),
                },
                mean_bytes: self.mean,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that rounding makes no more temporary blocks than freed ones. (It did in small sites of a sample.)
    #[test]
    fn temporary_blocks_are_no_more_than_frees() {
        for freed in 1..50 {
            for live in 1..50 {
                let mut sums = Sums::default();
                for size in [freed, live] {
                    sums.allocated(Estimate::of(size, 32), 32);
                }
                sums.freed(Estimate::of(freed, 32), true);
                let totals = sums.totals(&Amount::default());
                assert!(
                    totals.temporary_allocations <= totals.frees,
                    "{freed}, {live}: {totals:?}"
                );
            }
        }
    }
}
