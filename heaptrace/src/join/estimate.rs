//! What a sample stands for, and sums of that.
//!
//! Stage: join. An allocation of S bytes that is taken with the probability p stands for 1/p of its
//! kind, S/p bytes, and adds (1−p)/p² and S²(1−p)/p² to the variances of what is summed up. That is worked
//! out for each sample by itself, and the sums are of integers, so that a free takes away exactly
//! what its allocation added.

use std::ops::{AddAssign, SubAssign};

use heaptrace_common::sampling;

use super::update::{Errors, Totals};

/// Bits behind the point of every number here.
const POINT: u32 = 32;

/// How many allocations, of how many bytes, and how uncertain both are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Estimate {
    count: u128,
    bytes: u128,
    count_variance: u128,
    bytes_variance: u128,
}

impl Estimate {
    /// What an allocation stands for that was taken at this mean; where that is 1, all are.
    pub(super) fn of(size: u64, mean: u64) -> Self {
        if mean <= 1 {
            return Self {
                count: 1 << POINT,
                bytes: u128::from(size) << POINT,
                ..Self::default()
            };
        }
        let points = sampling::span(size) as f64 / mean as f64;
        // Not 1 − exp(−points), in which a small one would lose its digits.
        let weight = -1.0 / (-points).exp_m1();
        let variance = (-points).exp() * weight * weight;
        let size = size as f64;
        Self {
            count: fixed(weight),
            bytes: fixed(size * weight),
            count_variance: fixed(variance),
            bytes_variance: fixed(size * size * variance),
        }
    }

    /// Some bytes of an allocation that is recorded for certain, and the allocation with the last of them.
    pub(super) fn of_part(bytes: u64, is_last: bool) -> Self {
        Self {
            count: u128::from(is_last) << POINT,
            bytes: u128::from(bytes) << POINT,
            ..Self::default()
        }
    }

    /// Estimated number of allocations.
    fn count(&self) -> u64 {
        rounded(self.count)
    }

    /// Estimated number of bytes.
    pub(super) fn bytes(&self) -> u64 {
        rounded(self.bytes)
    }

    /// Standard error of the number of allocations.
    fn count_error(&self) -> u64 {
        error(self.count_variance)
    }

    /// Standard error of the number of bytes.
    pub(super) fn bytes_error(&self) -> u64 {
        error(self.bytes_variance)
    }

    /// Whether another one has more bytes.
    pub(super) fn is_below(&self, other: &Self) -> bool {
        self.bytes < other.bytes
    }
}

/// A number that is not negative in fixed point; what is too large is cut.
fn fixed(value: f64) -> u128 {
    (value * (1_u64 << POINT) as f64).round() as u128
}

fn rounded(value: u128) -> u64 {
    u64::try_from(value.saturating_add(1 << (POINT - 1)) >> POINT).unwrap_or(u64::MAX)
}

/// Standard error of a variance, rounded up: an uncertain number never looks exact.
fn error(variance: u128) -> u64 {
    (variance as f64 / (1_u64 << POINT) as f64).sqrt().ceil() as u64
}

impl AddAssign for Estimate {
    fn add_assign(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.count_variance = self.count_variance.saturating_add(other.count_variance);
        self.bytes_variance = self.bytes_variance.saturating_add(other.bytes_variance);
    }
}

impl SubAssign for Estimate {
    fn sub_assign(&mut self, other: Self) {
        self.count = self.count.saturating_sub(other.count);
        self.bytes = self.bytes.saturating_sub(other.bytes);
        self.count_variance = self.count_variance.saturating_sub(other.count_variance);
        self.bytes_variance = self.bytes_variance.saturating_sub(other.bytes_variance);
    }
}

/// Sums over the allocations of a site, of a process or of the run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    allocated: Estimate,
    /// Not seen freed, whether that could be seen or not.
    live: Estimate,
    /// The part of it that may have been freed while nobody looked.
    uncertain: Estimate,
    temporary: Estimate,
}

impl Sums {
    /// An allocation.
    pub(super) fn allocated(&mut self, block: Estimate) {
        self.allocated += block;
        self.live += block;
    }

    /// The free of one.
    pub(super) fn freed(&mut self, block: Estimate, temporary: bool) {
        self.live -= block;
        if temporary {
            self.temporary += block;
        }
    }

    /// The free of one that was uncertain.
    pub(super) fn proven_freed(&mut self, block: Estimate) {
        self.live -= block;
        self.uncertain -= block;
    }

    /// Makes so much of what is live uncertain.
    pub(super) fn doubt(&mut self, blocks: Estimate) {
        self.uncertain += blocks;
    }

    /// Adds the sums of another one.
    pub(super) fn merge(&mut self, other: &Self) {
        self.allocated += other.allocated;
        self.live += other.live;
        self.uncertain += other.uncertain;
        self.temporary += other.temporary;
    }

    /// What is live for certain.
    pub(super) fn live(&self) -> Estimate {
        let mut certain = self.live;
        certain -= self.uncertain;
        certain
    }

    /// The sums as counters, with a peak that is kept elsewhere.
    pub(super) fn totals(&self, peak: &Estimate) -> Totals {
        let mut freed = self.allocated;
        freed -= self.live;
        let live = self.live();
        let (allocations, unfreed) = (self.allocated.count(), self.live.count());
        let (allocated_bytes, unfreed_bytes) = (self.allocated.bytes(), self.live.bytes());
        let uncertain_allocations = self.uncertain.count();
        let uncertain_bytes = self.uncertain.bytes();
        Totals {
            allocations,
            allocated_bytes,
            // By subtraction, so that what is rounded adds up, too.
            frees: allocations.saturating_sub(unfreed),
            freed_bytes: allocated_bytes.saturating_sub(unfreed_bytes),
            live_allocations: unfreed.saturating_sub(uncertain_allocations),
            live_bytes: unfreed_bytes.saturating_sub(uncertain_bytes),
            uncertain_allocations,
            uncertain_bytes,
            peak_live_bytes: peak.bytes(),
            temporary_allocations: self.temporary.count(),
            errors: Errors {
                allocations: self.allocated.count_error(),
                allocated_bytes: self.allocated.bytes_error(),
                frees: freed.count_error(),
                freed_bytes: freed.bytes_error(),
                live_allocations: live.count_error(),
                live_bytes: live.bytes_error(),
                peak_live_bytes: peak.bytes_error(),
                temporary_allocations: self.temporary.count_error(),
            },
        }
    }
}
