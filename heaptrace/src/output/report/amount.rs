//! Numbers with their uncertainty.
//!
//! Stage: output.

use crate::join::Totals;
use crate::output::interval::{Interval, Intervals};
use crate::output::metric::Metric;

/// A number of a run, and the range that holds the true one.
#[derive(Clone, Debug)]
pub(super) struct Amount {
    metric: Metric,
    value: u64,
    interval: Option<Interval>,
}

impl Amount {
    pub(super) fn new(intervals: &Intervals, metric: Metric, totals: &Totals) -> Self {
        Self {
            metric,
            value: metric.of(totals),
            interval: intervals.around(metric, totals),
        }
    }

    /// Whether the number is an estimate.
    pub(super) fn is_estimate(&self) -> bool {
        self.interval.is_some()
    }

    /// The number; of an estimate of zero its upper bound: `below 1.5 MiB`.
    pub(super) fn value(&self) -> String {
        match self.interval {
            Some(it) if self.value == 0 => format!("below {}", self.metric.format(it.high)),
            _ => self.metric.format(self.value),
        }
    }

    /// The range around an estimate that is not zero: `0.9 to 2.4 MiB`.
    pub(super) fn range(&self) -> Option<String> {
        let interval = self.interval.filter(|_| self.value > 0)?;
        let (low, high) = (
            self.metric.format(interval.low),
            self.metric.format(interval.high),
        );
        Some(match (low.split_once(' '), high.split_once(' ')) {
            (Some((number, unit)), Some((_, of_high))) if unit == of_high => {
                format!("{number} to {high}")
            }
            _ => format!("{low} to {high}"),
        })
    }
}
