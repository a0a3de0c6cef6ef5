//! Counters in JSON, with their standard errors and the ends of their intervals.
//!
//! Stage: output. Field names and their order are stable.

use serde::Serialize;

use super::interval::{Counter, Interval, Intervals};
use super::metric::Metric;
use crate::join::Totals;

/// All counters.
#[derive(Serialize)]
pub(super) struct Counters {
    allocations: u64,
    allocated_bytes: u64,
    frees: u64,
    freed_bytes: u64,
    live_allocations: u64,
    live_bytes: u64,
    left_at_exit_allocations: u64,
    left_at_exit_bytes: u64,
    peak_live_bytes: u64,
    temporary_allocations: u64,
    /// Present if processes were paused at times.
    #[serde(skip_serializing_if = "Option::is_none")]
    uncertain_allocations: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uncertain_bytes: Option<u64>,
    #[serde(flatten)]
    errors: Option<Errors>,
    #[serde(flatten)]
    bounds: Option<Bounds>,
}

/// Standard errors of a sampled run.
#[derive(Serialize)]
struct Errors {
    allocations_error: u64,
    allocated_bytes_error: u64,
    frees_error: u64,
    freed_bytes_error: u64,
    live_allocations_error: u64,
    live_bytes_error: u64,
    left_at_exit_allocations_error: u64,
    left_at_exit_bytes_error: u64,
    peak_live_bytes_error: u64,
    temporary_allocations_error: u64,
}

/// The ends of the intervals around the counters of a sampled run.
#[derive(Serialize)]
struct Bounds {
    allocations_low: u64,
    allocations_high: u64,
    allocated_bytes_low: u64,
    allocated_bytes_high: u64,
    frees_low: u64,
    frees_high: u64,
    freed_bytes_low: u64,
    freed_bytes_high: u64,
    live_allocations_low: u64,
    live_allocations_high: u64,
    live_bytes_low: u64,
    live_bytes_high: u64,
    left_at_exit_allocations_low: u64,
    left_at_exit_allocations_high: u64,
    left_at_exit_bytes_low: u64,
    left_at_exit_bytes_high: u64,
    peak_live_bytes_low: u64,
    peak_live_bytes_high: u64,
    temporary_allocations_low: u64,
    temporary_allocations_high: u64,
}

impl Counters {
    /// These counters, for a run with these intervals.
    pub(super) fn new(totals: &Totals, intervals: &Intervals) -> Self {
        let errors = &totals.errors;
        Self {
            bounds: Bounds::new(totals, intervals),
            errors: intervals.are_of_a_sample().then_some(Errors {
                allocations_error: errors.allocations,
                allocated_bytes_error: errors.allocated_bytes,
                frees_error: errors.frees,
                freed_bytes_error: errors.freed_bytes,
                live_allocations_error: errors.live_allocations,
                live_bytes_error: errors.live_bytes,
                left_at_exit_allocations_error: errors.left_allocations,
                left_at_exit_bytes_error: errors.left_bytes,
                peak_live_bytes_error: errors.peak_live_bytes,
                temporary_allocations_error: errors.temporary_allocations,
            }),
            allocations: totals.allocations,
            allocated_bytes: totals.allocated_bytes,
            frees: totals.frees,
            freed_bytes: totals.freed_bytes,
            live_allocations: totals.live_allocations,
            live_bytes: totals.live_bytes,
            left_at_exit_allocations: totals.left_allocations,
            left_at_exit_bytes: totals.left_bytes,
            peak_live_bytes: totals.peak_live_bytes,
            temporary_allocations: totals.temporary_allocations,
            uncertain_allocations: non_zero(totals.uncertain_allocations),
            uncertain_bytes: non_zero(totals.uncertain_bytes),
        }
    }
}

impl Bounds {
    /// The intervals around these counters; `None` in an exact run.
    fn new(totals: &Totals, intervals: &Intervals) -> Option<Self> {
        if !intervals.are_of_a_sample() {
            return None;
        }
        let ends = |value, interval: Option<Interval>| {
            interval.map_or((value, value), |interval| (interval.low, interval.high))
        };
        let of = |metric: Metric| ends(metric.of(totals), intervals.around(metric, totals));
        let errors = &totals.errors;
        let freed = |value, unseen, error, is_bytes| {
            let counter = Counter {
                value,
                unseen,
                error,
                is_bytes,
            };
            ends(value, intervals.around_counter(counter, errors))
        };
        let (allocations_low, allocations_high) = of(Metric::TotalAllocations);
        let (allocated_bytes_low, allocated_bytes_high) = of(Metric::TotalBytes);
        let (frees_low, frees_high) = freed(totals.frees, errors.unseen.frees, errors.frees, false);
        let (freed_bytes_low, freed_bytes_high) = freed(
            totals.freed_bytes,
            errors.unseen.freed_bytes,
            errors.freed_bytes,
            true,
        );
        let (live_allocations_low, live_allocations_high) = of(Metric::LiveAllocations);
        let (live_bytes_low, live_bytes_high) = of(Metric::LiveBytes);
        let (left_at_exit_allocations_low, left_at_exit_allocations_high) =
            of(Metric::LeftAllocations);
        let (left_at_exit_bytes_low, left_at_exit_bytes_high) = of(Metric::LeftBytes);
        let (peak_live_bytes_low, peak_live_bytes_high) = of(Metric::PeakBytes);
        let (temporary_allocations_low, temporary_allocations_high) = of(Metric::Temporary);
        Some(Self {
            allocations_low,
            allocations_high,
            allocated_bytes_low,
            allocated_bytes_high,
            frees_low,
            frees_high,
            freed_bytes_low,
            freed_bytes_high,
            live_allocations_low,
            live_allocations_high,
            live_bytes_low,
            live_bytes_high,
            left_at_exit_allocations_low,
            left_at_exit_allocations_high,
            left_at_exit_bytes_low,
            left_at_exit_bytes_high,
            peak_live_bytes_low,
            peak_live_bytes_high,
            temporary_allocations_low,
            temporary_allocations_high,
        })
    }
}

/// The number, or `None` if it is zero.
pub(super) fn non_zero(number: u64) -> Option<u64> {
    (number != 0).then_some(number)
}
