//! A timeline for programs: JSON, schema 1.
//!
//! Stage: output. Field names and their order are stable. Fields can be added, but never changed.

use std::io::{self, Write};

use serde::Serialize;

use super::course::{Point, Series, Timeline};
use crate::output::json::{Mode, Moment, Range, Remarks, Stack};
use crate::output::json_escaping::write_line;
use crate::output::report_input::ReportInput;
use crate::profile::Counter;

/// Writes it as one line.
pub(super) fn write(
    input: &ReportInput<'_>,
    timeline: &Timeline,
    out: &mut dyn Write,
) -> io::Result<()> {
    let profile = input.profile;
    let of_total = |of: fn(&Point) -> u64| timeline.total.iter().map(of).collect();
    let is_sampled = timeline.is_sampled;
    let report = Report {
        schema: 1,
        version: &profile.info.version,
        mode: profile.info.mode.into(),
        duration_ns: profile.duration_ns,
        started_unix_ns: profile.info.started_unix_ns,
        target: &profile.info.target,
        remarks: Remarks::of(input),
        range: profile.range.map(Into::into),
        metric: timeline.metric.name(),
        by: timeline.by.name(),
        snapshots: timeline.snapshots,
        peak: timeline.peak.map(|peak| Peak {
            after_ns: peak.after_ns,
            at_ns: peak.at_ns,
            value: peak.value,
        }),
        times_ns: &timeline.times,
        total: Total {
            values: of_total(|it| it.value),
            most: of_total(|it| it.most),
            errors: is_sampled.then(|| of_total(|it| it.error)),
            low: is_sampled.then(|| of_total(Point::lower)),
            high: is_sampled.then(|| of_total(Point::upper)),
        },
        groups: timeline
            .groups
            .iter()
            .map(|it| Group::new(input, it, is_sampled))
            .collect(),
        groups_in_all: timeline.all,
        rest: &timeline.rest,
        moments: Moment::all(input),
    };
    write_line(&report, out)
}

#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    version: &'a str,
    mode: Mode,
    duration_ns: u64,
    started_unix_ns: u64,
    target: &'a str,
    #[serde(flatten)]
    remarks: Remarks<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<Range>,
    metric: &'static str,
    by: &'static str,
    /// The snapshots of this time. If there are many, a time stands for several.
    snapshots: usize,
    /// The highest that is known; `null` if there was nothing, and for what only grows.
    peak: Option<Peak>,
    /// Since the run began. All lists of values are of these times.
    times_ns: &'a [u64],
    total: Total,
    groups: Vec<Group<'a>>,
    groups_in_all: usize,
    /// What the groups that are not in the list have together.
    rest: &'a [u64],
    /// What happened by itself in this time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    moments: Vec<Moment>,
}

/// It was after one time, and at the other at the latest.
#[derive(Serialize)]
struct Peak {
    after_ns: u64,
    at_ns: u64,
    value: u64,
}

#[derive(Serialize)]
struct Total {
    values: Vec<u64>,
    /// The most since the time before, as far as it is known.
    most: Vec<u64>,
    /// Standard errors; these and the ranges of 95 % are absent in an exact run.
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<Vec<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    low: Option<Vec<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    high: Option<Vec<u64>>,
}

#[derive(Serialize)]
struct Group<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stack: Option<Stack<'a>>,
    sites: u64,
    values: Vec<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<Vec<u64>>,
}

impl<'a> Group<'a> {
    fn new(input: &'a ReportInput<'a>, series: &'a Series, is_sampled: bool) -> Self {
        let group = &series.group;
        let values = |of: fn(&Counter) -> u64| series.values.iter().map(of).collect();
        Self {
            name: &group.name,
            source: group.source.as_deref(),
            stack: group.stack.map(|stack| Stack(input, stack)),
            sites: group.sites,
            values: values(|it| it.value),
            errors: is_sampled.then(|| values(|it| it.error)),
        }
    }
}
