//! Intervals around estimates: each holds the true number in 95 % of runs.
//!
//! Stage: output. Knows only the counters and how the run was sampled; each format decides how to show them.
//!
//! A standard error says little where samples are few, and nothing where there are none. These intervals are Fay
//! and Feuer's for weighted sums of Poisson counts, around the part of a counter that was not seen. The part that
//! was seen is certain. See docs/design/sampling.md.

use std::sync::Arc;

use crate::join::{Errors, Note, Process, Totals};
use crate::profile::{Mode, Profile};

use super::metric::Metric;

/// Standard errors on each side of an interval that has many samples.
const SIGMAS: f64 = 2.0;

/// The smallest block that is assumed if nothing is known of requested sizes.
const SMALLEST: u64 = 16;

/// A range that holds the true number in 95 % of runs. It always holds the estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// The lower end.
    pub low: u64,
    /// The upper end.
    pub high: u64,
}

/// What the intervals of a run depend on.
#[derive(Clone, Debug)]
pub struct Intervals {
    /// The largest mean of bytes between samples; `None` in an exact run.
    mean: Option<u64>,
    /// The smallest size of each class of requested sizes, with the number of calls.
    classes: Arc<[(u64, u64)]>,
    /// Whether a process runs, so that memory can be live without a sample.
    may_be_live: bool,
    /// Whether a process has ended, so that it can have left memory without a sample.
    may_be_left: bool,
}

/// A counter: its value, what of it was not seen, and the standard error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counter {
    pub(super) value: u64,
    pub(super) unseen: u64,
    pub(super) error: u64,
    pub(super) is_bytes: bool,
}

impl Intervals {
    /// The intervals of a run.
    pub fn of(profile: &Profile) -> Self {
        let mean = match profile.info.mode {
            Mode::Exact => None,
            Mode::Sampled { mean_bytes } => {
                let means = profile.rates.iter().map(|change| change.mean_bytes);
                Some(means.fold(mean_bytes, u64::max))
            }
        };
        let range = profile.info.sizes;
        // The calls of processes on the fast path are estimates, so they limit nothing.
        let moved = profile.quality.noted.get(Note::ProcessesFast.name());
        let is_fast = moved.is_some_and(|processes| *processes > 0);
        // Those of a part of a run say nothing of older blocks.
        let is_counted = !is_fast && profile.range.is_none();
        let counted: &[u64] = if is_counted { &profile.sizes } else { &[] };
        let starts = std::iter::once(0).chain((0..64).map(|power: u32| 1 << power));
        let ends = (0..=64).map(|bits: u32| u64::MAX.checked_shr(64 - bits).unwrap_or(0));
        let classes = starts
            .zip(ends)
            .zip(counted)
            .filter(|((start, end), _)| *end >= range.min && *start <= range.max)
            .map(|((start, _), calls)| (start.max(range.min).max(1), *calls))
            .collect();
        let processes = &profile.processes;
        Self {
            mean,
            classes,
            may_be_live: processes.is_empty() || processes.iter().any(|it| !it.ended),
            may_be_left: processes.iter().any(|it| it.ended),
        }
    }

    /// The intervals of a process and of its sites.
    pub fn of_process(&self, process: &Process) -> Self {
        Self {
            may_be_live: !process.ended,
            may_be_left: process.ended,
            ..self.clone()
        }
    }

    /// Whether the run was sampled, so that there are intervals.
    pub(super) fn are_of_a_sample(&self) -> bool {
        self.mean.is_some()
    }

    /// The interval around a counter; `None` if the counter is exact. `totals` are those of the run, of a process, of
    /// a site, or sums of them.
    pub fn around(&self, metric: Metric, totals: &Totals) -> Option<Interval> {
        let can_be = match metric {
            Metric::LiveBytes | Metric::LiveAllocations => self.may_be_live,
            Metric::LeftBytes | Metric::LeftAllocations => self.may_be_left,
            _ => true,
        };
        if !can_be && metric.of(totals) == 0 {
            return None;
        }
        let unseen = &totals.errors.unseen;
        let unseen = match metric {
            Metric::LiveBytes => unseen.live_bytes,
            Metric::LiveAllocations => unseen.live_allocations,
            Metric::LeftBytes => unseen.left_bytes,
            Metric::LeftAllocations => unseen.left_allocations,
            Metric::TotalBytes => unseen.allocated_bytes,
            Metric::TotalAllocations => unseen.allocations,
            Metric::PeakBytes => unseen.peak_live_bytes,
            Metric::Temporary => unseen.temporary_allocations,
        };
        let counter = Counter {
            value: metric.of(totals),
            unseen,
            error: metric.error(totals),
            is_bytes: metric.is_bytes(),
        };
        self.around_counter(counter, &totals.errors)
    }

    /// The interval around one of the counters with these errors.
    pub(super) fn around_counter(&self, counter: Counter, errors: &Errors) -> Option<Interval> {
        let run_mean = self.mean?;
        let (mean, unseen) = match errors.mean_bytes {
            // Nothing was sampled, or the file is from before the unseen part was recorded.
            0 if counter.error == 0 => (run_mean, 0),
            0 => (run_mean, counter.value),
            1 => return None,
            mean => (mean, counter.unseen),
        };
        let mean = mean as f64;
        let seen = counter.value.saturating_sub(unseen);
        let unseen = unseen as f64;
        let variance = (counter.error as f64).powi(2);
        let low = lower(unseen, variance, mean, counter.is_bytes) as u64;
        // The next sample could have been one of the smallest blocks.
        let weight = if counter.is_bytes {
            mean
        } else {
            self.blocks_unseen(mean) / one_sample()
        };
        let mut high = gamma(unseen + weight, variance + weight * weight, SIGMAS).ceil();
        if !counter.is_bytes {
            high = high.min(self.calls());
        }
        Some(Interval {
            low: seen.saturating_add(low).min(counter.value),
            high: seen.saturating_add(high as u64).max(counter.value),
        })
    }

    /// The most blocks that can exist without a sample: as many of the smallest requests as have the bytes for it.
    fn blocks_unseen(&self, mean: f64) -> f64 {
        let mut bytes = one_sample() * mean;
        if self.classes.is_empty() {
            return bytes / SMALLEST as f64;
        }
        let mut blocks = 0.0;
        for (size, calls) in self.classes.iter() {
            let size = *size as f64;
            let fitting = (*calls as f64).min(bytes / size);
            blocks += fitting;
            bytes -= fitting * size;
        }
        // Less than one block would mean that a count of zero is certain.
        blocks.max(1.0)
    }

    /// All calls: no more blocks than these can be unseen.
    fn calls(&self) -> f64 {
        if self.classes.is_empty() {
            return f64::INFINITY;
        }
        self.classes.iter().map(|(_, calls)| *calls as f64).sum()
    }
}

/// The lower end of what was not seen.
fn lower(unseen: f64, variance: f64, mean: f64, is_bytes: bool) -> f64 {
    if unseen <= 0.0 || variance <= 0.0 {
        return 0.0;
    }
    let low = gamma(unseen, variance, -SIGMAS);
    if !is_bytes {
        return low.floor();
    }
    // The true number consists of whole blocks. Their size follows from the weight of a sample, which is between
    // the mean plus half a block and the block itself.
    let weight = variance / unseen;
    let block = (2.0 * (weight - mean)).clamp(0.0, weight);
    (low - block).max(0.0)
}

/// What can be unseen, in means, if there is no sample.
fn one_sample() -> f64 {
    gamma(1.0, 1.0, SIGMAS)
}

/// The quantile of the gamma distribution with this expectation and variance that the normal distribution has at so
/// many standard errors: Wilson and Hilferty's approximation.
fn gamma(expectation: f64, variance: f64, sigmas: f64) -> f64 {
    let part = variance / (9.0 * expectation * expectation);
    let root = 1.0 - part + sigmas * part.sqrt();
    expectation * root.max(0.0).powi(3)
}
