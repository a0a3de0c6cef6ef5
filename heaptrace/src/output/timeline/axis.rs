//! The ticks of the axes of a plot: round numbers, and their words.
//!
//! Stage: output. Pure arithmetic.

use crate::output::metric::Metric;

const SECOND: u64 = 1_000_000_000;

/// Steps of time, in milliseconds.
const TIMES: [u64; 24] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000,
    120_000, 300_000, 600_000, 1_800_000, 3_600_000, 10_800_000, 21_600_000, 86_400_000,
];

/// Round times between two times, at most `most` of them, nanoseconds.
pub(super) fn times(from: u64, to: u64, most: usize) -> Vec<u64> {
    let span = to.saturating_sub(from);
    let most = most.max(1) as u64;
    let is_wide = |step: &u64| span / step <= most;
    let steps = TIMES.iter().map(|step| step * (SECOND / 1_000));
    let days = (1..40).map(|power| 86_400 * SECOND * (1 << power.min(14)));
    let mut wide = steps.chain(days).filter(is_wide);
    let Some(step) = wide.next() else {
        return vec![from];
    };
    let first = from.div_ceil(step);
    (first..=to / step)
        .take(most as usize + 1)
        .map(|at| at * step)
        .collect()
}

/// A time on an axis whose ticks are so far apart: `0.5 s`, `12 s`, `2:30`, `1:00:00`.
pub(super) fn time(ns: u64, ticks: &[u64]) -> String {
    let step = match ticks {
        [first, second, ..] => second - first,
        _ => 0,
    };
    let last = ticks.last().copied().unwrap_or(ns).max(ns);
    let seconds = ns / SECOND;
    if last < 120 * SECOND || (step > 0 && step < SECOND) {
        let digits = match step {
            step if step == 0 || step >= SECOND => 0,
            step if step >= SECOND / 10 => 1,
            step if step >= SECOND / 100 => 2,
            _ => 3,
        };
        return format!("{:.digits$} s", ns as f64 / 1e9);
    }
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    if last < 3_600 * SECOND {
        format!("{minutes}:{seconds:02} min")
    } else if step > 0 && step < 60 * SECOND {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else if last < 72 * 3_600 * SECOND || (step > 0 && step < 3_600 * SECOND) {
        format!("{hours}:{minutes:02} h")
    } else if step > 0 && step < 86_400 * SECOND {
        format!("{} d {} h", hours / 24, hours % 24)
    } else {
        format!("{} d", hours / 24)
    }
}

/// Round numbers from zero up to the first that is not below `most`; at least `parts` steps, if there are so many.
pub(super) fn numbers(metric: Metric, most: u64, parts: u64) -> Vec<u64> {
    let most = most.max(1);
    let wanted = (most / parts.max(1)).max(1);
    let step = if metric.is_bytes() {
        wanted.checked_next_power_of_two().unwrap_or(1 << 63)
    } else {
        let power = 10_u64.pow(wanted.ilog10());
        let factors = [1, 2, 5, 10].into_iter();
        let steps = factors.map(|it| power.saturating_mul(it));
        steps.into_iter().find(|it| *it >= wanted).unwrap_or(wanted)
    };
    let steps = most.div_ceil(step);
    (0..=steps).map(|at| step.saturating_mul(at)).collect()
}

/// A number on an axis: `0`, `512 KiB`, `1.5 GiB`, `20,000`.
pub(super) fn number(metric: Metric, value: u64) -> String {
    if value == 0 {
        return "0".to_owned();
    }
    let words = metric.format(value);
    // Steps are powers of two, so that nothing is cut off.
    words.replace(".0 ", " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that ticks are round, in the range, and as many as fit; also of an empty and of an endless run.
    #[test]
    fn ticks_are_round() {
        let s = |seconds: u64| seconds * SECOND;
        assert_eq!(times(0, s(18), 4), [0, s(5), s(10), s(15)]);
        assert_eq!(times(s(61), s(200), 3), [s(120), s(180)]);
        assert_eq!(times(7, 7, 3).len(), 0);
        assert!(times(0, u64::MAX, 4).len() <= 5);
        let found = times(0, s(18), 4);
        assert_eq!(time(s(5), &found), "5 s");
        assert_eq!(time(s(120), &[0, s(60), s(120)]), "2:00 min");
        assert_eq!(time(s(5_400), &[0, s(1_800), s(5_400)]), "1:30 h");
        assert_eq!(time(SECOND / 2, &[0, SECOND / 2]), "0.5 s");
        let half = s(201) + SECOND / 2;
        assert_eq!(time(half, &[s(201), half]), "201.5 s");
        assert_eq!(time(s(3_661), &[s(3_660), s(3_661)]), "1:01:01");
        assert_eq!(
            time(s(97 * 3_600), &[s(96 * 3_600), s(97 * 3_600)]),
            "4 d 1 h"
        );

        assert_eq!(
            numbers(Metric::LiveBytes, 9 << 20, 4),
            [0, 4 << 20, 8 << 20, 12 << 20]
        );
        assert_eq!(numbers(Metric::LiveAllocations, 900, 4), [0, 500, 1_000]);
        assert_eq!(numbers(Metric::LiveBytes, 0, 4), [0, 1]);
        assert!(numbers(Metric::LiveBytes, u64::MAX, 4).len() < 10);
        assert!(numbers(Metric::LiveAllocations, u64::MAX, 4).len() < 10);
        assert_eq!(number(Metric::LiveBytes, 4 << 20), "4 MiB");
        assert_eq!(number(Metric::LiveBytes, 0), "0");
    }
}
