//! Numbers of the live view with their uncertainty.
//!
//! Stage: view. Must not know where they stand.

use crate::join::Totals;
use crate::output::{Interval, Intervals, Metric};

/// A number for a sentence: `6.3 MiB` if it is exact, `6.3 MiB (5.9–6.8 MiB)` or `below 1.5 MiB` if it is an estimate.
pub fn number(metric: Metric, totals: &Totals, intervals: &Intervals) -> String {
    let value = metric.format(metric.of(totals));
    match intervals.around(metric, totals) {
        None => value,
        Some(around) if metric.of(totals) == 0 => below(metric, around),
        Some(around) => format!("{value} ({})", range(metric, around)),
    }
}

/// What stands for an estimate of zero.
pub(super) fn below(metric: Metric, around: Interval) -> String {
    format!("below {}", metric.format(around.high))
}

/// An interval: `5.9–6.8 MiB`, or `13.1 KiB–2.9 MiB` if its ends have different units.
pub(super) fn range(metric: Metric, around: Interval) -> String {
    let [low, high] = [around.low, around.high].map(|end| metric.format(end));
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((low, unit)), Some((_, same))) if unit == same => format!("{low}–{high}"),
        // Zero bytes need no unit.
        (Some(("0", _)), _) => format!("0–{high}"),
        _ => format!("{low}–{high}"),
    }
}

/// The first of these parts and as many of the others as fit, as one text.
pub(super) fn fitted(parts: &[String], width: Option<usize>) -> String {
    let mut line = String::new();
    for part in parts.iter().filter(|part| !part.is_empty()) {
        let more = if line.is_empty() { "" } else { ", " };
        let needed = line.chars().count() + more.len() + part.chars().count();
        if !line.is_empty() && width.is_some_and(|width| needed > width) {
            continue;
        }
        line.push_str(more);
        line.push_str(part);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the ends of an interval share their unit, and that zero has an upper bound.
    #[test]
    fn intervals_are_short() {
        let mib = 1 << 20;
        for (low, high, expected) in [
            (mib, 2 * mib, "1.0–2.0 MiB"),
            (13_400, 3 * mib, "13.1 KiB–3.0 MiB"),
            (0, mib, "0–1.0 MiB"),
            (0, 9, "0–9 B"),
        ] {
            assert_eq!(range(Metric::LiveBytes, Interval { low, high }), expected);
        }
        let around = Interval { low: 0, high: mib };
        assert_eq!(below(Metric::LiveBytes, around), "below 1.0 MiB");
        let blocks = Interval { low: 3, high: 4096 };
        assert_eq!(range(Metric::LiveAllocations, blocks), "3–4,096");
    }

    /// Check that parts that don't fit are left out, but never the first.
    #[test]
    fn parts_are_left_out() {
        let parts = ["live 1 B", "peak 12345 B", "total 2 B", ""].map(str::to_owned);
        assert_eq!(fitted(&parts, None), "live 1 B, peak 12345 B, total 2 B");
        assert_eq!(fitted(&parts, Some(20)), "live 1 B, total 2 B");
        assert_eq!(fitted(&parts, Some(3)), "live 1 B");
    }
}
