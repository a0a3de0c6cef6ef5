//! The columns of numbers of the live table: the number that ranks comes first, others follow where they fit.
//!
//! Stage: view. In a sample, each number has its interval beside it. Must not know what the rows stand for.

use super::head::uncertain_bytes;
use super::words::{below, range};
use crate::join::Totals;
use crate::output::{Covered, Intervals, Metric};
use crate::profile::Profile;
use crate::text;

/// The columns that are shown where there is room, the most useful first.
const USUAL: [Metric; 4] = [
    Metric::LiveBytes,
    Metric::LiveAllocations,
    Metric::TotalBytes,
    Metric::TotalAllocations,
];

/// The smallest width that is left for the rest of a row.
const REST: usize = 46;

/// The width of an exact number of bytes or blocks.
const NUMBER: usize = 11;
/// The width of an interval.
const RANGE: usize = 18;
/// The space between two columns.
const GAP: usize = 2;

/// The columns of a table.
pub(super) struct Columns {
    metrics: Vec<Metric>,
    intervals: Intervals,
    is_sampled: bool,
    /// Whether there is no room for estimates beside their intervals.
    is_narrow: bool,
    /// Whether memory of paused processes may still be live.
    is_uncertain: bool,
    /// Whether processes were paused at times.
    is_covered: bool,
}

impl Columns {
    /// The columns for a width, of which another part of each row needs `other`.
    pub(super) fn new(
        profile: &Profile,
        metric: Metric,
        width: Option<usize>,
        other: usize,
    ) -> Self {
        let is_sampled = profile.info.mode.is_sampled();
        let room = width.map_or(usize::MAX, |width| width.saturating_sub(REST + other));
        let mut columns = Self {
            metrics: vec![metric],
            intervals: Intervals::of(profile),
            is_sampled,
            is_narrow: is_sampled && room < NUMBER + RANGE + GAP,
            is_uncertain: uncertain_bytes(profile) > 0,
            is_covered: profile.processes.iter().any(|it| it.duty_cycle.is_some()),
        };
        // A sample of bytes says little of the number of blocks.
        let is_useful = |usual: &Metric| *usual != metric && (!is_sampled || usual.is_bytes());
        for usual in USUAL.into_iter().filter(is_useful) {
            columns.metrics.push(usual);
            if columns.width() > room {
                columns.metrics.pop();
                break;
            }
        }
        columns
    }

    /// The headings, right-aligned as the numbers.
    pub(super) fn headings(&self) -> String {
        let mut line = String::new();
        for metric in &self.metrics {
            let heading = heading(*metric);
            let cell = match (self.is_sampled, self.is_narrow) {
                (false, _) => format!("{heading:>NUMBER$}"),
                (true, true) => format!("{heading:<RANGE$}"),
                (true, false) => format!("{heading:>NUMBER$}{:<RANGE$}", " 95 % range"),
            };
            push(&mut line, &cell);
        }
        if self.is_uncertain {
            push(&mut line, &format!("{:>NUMBER$}", "perhaps"));
        }
        if self.is_covered {
            push(&mut line, " probed");
        }
        line
    }

    /// The numbers of a row.
    pub(super) fn cells(&self, totals: &Totals, covered: Option<Covered>) -> String {
        let mut line = String::new();
        for metric in &self.metrics {
            push(&mut line, &self.cell(*metric, totals));
        }
        if self.is_uncertain {
            let more = match totals.uncertain_bytes {
                0 => String::new(),
                bytes => format!("+ {}", text::bytes(bytes)),
            };
            push(&mut line, &format!("{more:>NUMBER$}"));
        }
        if self.is_covered {
            let share =
                covered.map_or_else(String::new, |it| text::share(it.probed_ns, it.since_ns));
            push(&mut line, &format!("{share:>7}"));
        }
        line
    }

    fn cell(&self, metric: Metric, totals: &Totals) -> String {
        let value = metric.format(metric.of(totals));
        if !self.is_sampled {
            return format!("{value:>NUMBER$}");
        }
        let around = self.intervals.around(metric, totals);
        let words = match around {
            None => String::new(),
            Some(around) if metric.of(totals) == 0 => below(metric, around),
            Some(around) => range(metric, around),
        };
        match around {
            // Mapped memory is exact, also in a sample.
            None if self.is_narrow => format!("{value:<RANGE$}"),
            None => format!("{value:>NUMBER$}{:RANGE$}", ""),
            Some(_) if self.is_narrow => format!("{words:<RANGE$}"),
            Some(_) if metric.of(totals) == 0 => format!("{:NUMBER$} {words:<1$}", "", RANGE - 1),
            Some(_) => format!("{value:>NUMBER$} {words:<0$}", RANGE - 1),
        }
    }

    fn width(&self) -> usize {
        self.headings().chars().count()
    }
}

/// A short name of a number.
fn heading(metric: Metric) -> &'static str {
    match metric {
        Metric::LiveBytes => "live bytes",
        Metric::LiveAllocations => "live blocks",
        Metric::TotalBytes => "total bytes",
        Metric::TotalAllocations => "allocations",
        Metric::PeakBytes => "at the peak",
        Metric::LeftBytes => "left bytes",
        Metric::LeftAllocations => "left blocks",
        Metric::Temporary => "temporary",
    }
}

fn push(line: &mut String, cell: &str) {
    if !line.is_empty() {
        line.push_str("  ");
    }
    line.push_str(cell);
}
