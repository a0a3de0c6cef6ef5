//! The memory of a run over time: in all, and of its largest groups.
//!
//! Stage: output. Made from the snapshots and the history of a recording. Must not know how it is shown.

use crate::join::{Errors, Totals};
use crate::output::groups::{Group, groups_of_sites};
use crate::output::interval::{Interval, Intervals};
use crate::output::label::Label;
use crate::output::metric::Metric;
use crate::output::report_input::ReportInput;
use crate::profile::{Counter, History, Period, Snapshot};

/// The memory of a run over time.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// The number that is followed.
    pub metric: Metric,
    /// What groups are made by.
    pub by: Label,
    /// The times of all points, nanoseconds since the run began. The first is the beginning.
    pub times: Vec<u64>,
    /// The number at each time.
    pub total: Vec<Point>,
    /// The groups that had most at any time, the largest first.
    pub groups: Vec<Series>,
    /// What the other groups have together.
    pub rest: Vec<u64>,
    /// The number of all groups that had something.
    pub all: usize,
    /// The highest that is known.
    pub peak: Option<Highest>,
    /// The number of snapshots in this time.
    pub snapshots: usize,
    /// Whether the numbers are estimates.
    pub is_sampled: bool,
}

/// The total at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// The number.
    pub value: u64,
    /// The standard error.
    pub error: u64,
    /// The range that holds the true number in 95 % of runs; `None` if the number is exact, or if only its error is known.
    pub interval: Option<Interval>,
    /// The most since the time before, as far as is known.
    pub most: u64,
}

impl Point {
    /// The upper end of what the number may be.
    pub(super) fn upper(&self) -> u64 {
        let of_error = self.value.saturating_add(self.error.saturating_mul(2));
        self.interval.map_or(of_error, |it| it.high)
    }

    /// The lower end.
    pub(super) fn lower(&self) -> u64 {
        let of_error = self.value.saturating_sub(self.error.saturating_mul(2));
        self.interval.map_or(of_error, |it| it.low)
    }
}

/// A group over time.
#[derive(Clone, Debug)]
pub struct Series {
    /// The group.
    pub group: Group,
    /// Its number at each time, with its standard error.
    pub values: Vec<Counter>,
    /// The most of these.
    pub most: u64,
}

/// The highest number, and when that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Highest {
    /// It was after this time, and at the next one at the latest.
    pub after_ns: u64,
    /// The latest time.
    pub at_ns: u64,
    /// The number.
    pub value: u64,
}

/// Follows a number over the time of a profile, in all and in its `top` largest groups.
pub fn timeline(
    input: &ReportInput<'_>,
    history: &History,
    snapshots: &[Snapshot],
    metric: Metric,
    by: Label,
    top: usize,
) -> Timeline {
    let range = input.profile.range;
    let from = range.map_or(0, |it| it.from_ns);
    let to = range.map_or(u64::MAX, |it| it.to_ns);
    let ends = history.ends();
    let first = ends.iter().take_while(|it| **it <= from).count();
    let last = ends.iter().take_while(|it| **it <= to).count().max(first);
    let ends_here = ends.get(first..last).unwrap_or_default();
    let times: Vec<u64> = std::iter::once(from)
        .chain(ends_here.iter().copied())
        .collect();
    let within = Within {
        metric,
        first,
        last,
    };
    let known = ends.last().copied().unwrap_or(0).min(to);
    let snapshots = snapshots.iter().take_while(|it| it.elapsed_ns <= known);
    let snapshots: Vec<_> = snapshots.collect();

    let (groups, of_sites) = groups_of_sites(input, by);
    let mut sites: Vec<_> = of_sites.into_iter().zip(&input.profile.sites).collect();
    sites.sort_by_key(|it| it.0);
    let mut sums = vec![Counter::default(); times.len()];
    let mut largest: Vec<(u64, usize, Vec<Counter>)> = Vec::new();
    let mut all = 0;
    for same in sites.chunk_by(|a, b| a.0 == b.0) {
        let mut values = vec![Counter::default(); times.len()];
        for (_, site) in same {
            within.add(&mut values, &history.of(site));
        }
        for (sum, value) in sums.iter_mut().zip(&values) {
            *sum = plus(*sum, *value);
        }
        let most = values.iter().map(|it| it.value).max().unwrap_or(0);
        all += usize::from(most > 0);
        let at = largest.partition_point(|it| it.0 >= most);
        if at < top && most > 0 {
            largest.insert(at, (most, same[0].0, values));
            largest.truncate(top);
        }
    }
    let is_whole = input.filters.is_empty();
    let total = match is_whole {
        true => of_snapshots(input, metric, &times, &snapshots),
        // Snapshots have the sums of the whole run.
        false => sums.iter().map(of_sum).collect(),
    };
    // What only grows has no highest.
    let peak = match (metric.is_live(), is_whole) {
        (false, _) => None,
        (true, true) => highest_snapshot(metric, from, &snapshots),
        (true, false) => highest(&times, &total),
    };
    let mut rest: Vec<u64> = total.iter().map(|it| it.value).collect();
    for (_, _, values) in &largest {
        for (rest, value) in rest.iter_mut().zip(values) {
            *rest = rest.saturating_sub(value.value);
        }
    }
    let mut groups: Vec<_> = groups.into_iter().map(Some).collect();
    let series = largest.into_iter().filter_map(|(most, id, values)| {
        let group = groups.get_mut(id)?.take()?;
        Some(Series {
            group,
            values,
            most,
        })
    });
    Timeline {
        metric,
        by,
        groups: series.collect(),
        total,
        rest,
        all,
        peak,
        snapshots: snapshots.iter().filter(|it| it.elapsed_ns > from).count(),
        is_sampled: input.profile.info.mode.is_sampled(),
        times,
    }
}

/// The periods of a history that are shown.
struct Within {
    metric: Metric,
    first: usize,
    last: usize,
}

impl Within {
    /// Adds a site.
    fn add(&self, sums: &mut [Counter], periods: &[Period]) {
        let before = self.first.checked_sub(1).and_then(|at| periods.get(at));
        let before = before.map_or_else(Counter::default, |it| self.counter(it));
        let shown = periods.get(self.first..self.last).unwrap_or_default();
        let counters = std::iter::once(before).chain(shown.iter().map(|it| self.counter(it)));
        for (sum, counter) in sums.iter_mut().zip(counters) {
            *sum = plus(*sum, self.since(counter, before));
        }
    }

    fn counter(&self, period: &Period) -> Counter {
        match self.metric {
            Metric::LiveAllocations => period.live_blocks,
            Metric::TotalBytes => Counter {
                value: period.allocated,
                error: period.allocated_error,
            },
            Metric::TotalAllocations => period.blocks,
            _ => period.live,
        }
    }

    /// What was allocated counts from the beginning of the time on.
    fn since(&self, now: Counter, before: Counter) -> Counter {
        match self.metric.is_live() {
            true => now,
            false => Counter {
                value: now.value.saturating_sub(before.value),
                error: now.error,
            },
        }
    }
}

fn plus(a: Counter, b: Counter) -> Counter {
    Counter {
        value: a.value.saturating_add(b.value),
        error: Errors::both(a.error, b.error),
    }
}

fn of_sum(sum: &Counter) -> Point {
    Point {
        value: sum.value,
        error: sum.error,
        interval: None,
        most: sum.value,
    }
}

/// The totals at each time, and the most between.
fn of_snapshots(
    input: &ReportInput<'_>,
    metric: Metric,
    times: &[u64],
    snapshots: &[&Snapshot],
) -> Vec<Point> {
    let intervals = Intervals::of(input.profile);
    let mut snapshots = snapshots.iter().peekable();
    let mut totals = Totals::default();
    let mut points = Vec::with_capacity(times.len());
    let mut before = 0;
    for (at, time) in times.iter().enumerate() {
        let mut most = metric.of(&totals);
        while let Some(next) = snapshots.next_if(|it| it.elapsed_ns <= *time) {
            most = most.max(since_before(metric, &next.totals, &totals));
            totals = next.totals;
        }
        let value = metric.of(&totals);
        if at == 0 && !metric.is_live() {
            before = value;
        }
        let interval = intervals.around(metric, &totals);
        let since = |number: u64| number.saturating_sub(before);
        points.push(Point {
            value: since(value),
            error: metric.error(&totals),
            interval: interval.map(|it| Interval {
                low: since(it.low),
                high: since(it.high),
            }),
            most: match at {
                0 => since(value),
                _ => since(most),
            },
        });
    }
    points
}

/// The most between two snapshots, as far as they know: if the peak of the run has risen, it was between them.
fn since_before(metric: Metric, now: &Totals, before: &Totals) -> u64 {
    let value = metric.of(now);
    match metric {
        Metric::LiveBytes if now.peak_live_bytes > before.peak_live_bytes => {
            value.max(now.peak_live_bytes)
        }
        _ => value,
    }
}

fn highest_snapshot(metric: Metric, from: u64, snapshots: &[&Snapshot]) -> Option<Highest> {
    let mut found: Option<Highest> = None;
    let mut before = (0, Totals::default());
    for snapshot in snapshots {
        let now = (snapshot.elapsed_ns, snapshot.totals);
        let most = since_before(metric, &now.1, &before.1);
        let is_between = most > metric.of(&now.1);
        if now.0 >= from && found.is_none_or(|it| most > it.value) {
            found = Some(Highest {
                after_ns: if is_between {
                    before.0.max(from)
                } else {
                    now.0
                },
                at_ns: now.0,
                value: most,
            });
        }
        before = now;
    }
    found.filter(|it| it.value > 0)
}

fn highest(times: &[u64], total: &[Point]) -> Option<Highest> {
    let pairs = times.iter().zip(total).rev();
    let (time, point) = pairs.max_by_key(|it| it.1.value)?;
    let found = Highest {
        after_ns: *time,
        at_ns: *time,
        value: point.value,
    };
    (found.value > 0).then_some(found)
}
