//! A difference for programs: JSON, schema 1.
//!
//! Stage: output. Field names are stable. Fields can be added, but never changed.

use std::io::Write;

use serde::Serialize;

use super::change::{Change, Fate};
use super::rows::{Row, Summary, rows};
use super::side::{DiffOptions, Side};
use crate::output::counters::Counters;
use crate::output::error::OutputError;
use crate::output::filter::Filter;
use crate::output::json_escaping::write_line;

#[derive(Serialize)]
struct Difference<'a> {
    schema: u32,
    metric: &'static str,
    by: &'static str,
    old: Run<'a>,
    new: Run<'a>,
    total: Changed,
    summary: Vec<Sum>,
    in_common: u64,
    rows: Vec<Line>,
}

#[derive(Serialize)]
struct Run<'a> {
    file: &'a str,
    /// The number of the mark since which everything was allocated that is compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    since_mark: Option<u32>,
    target: &'a str,
    mode: String,
    duration_ns: u64,
    warnings: &'a [String],
    filters: Vec<String>,
    totals: Counters,
}

/// The rows of a fate. Noise is a fate of its own here.
#[derive(Serialize)]
struct Sum {
    fate: &'static str,
    rows: u64,
    change: i64,
}

#[derive(Serialize)]
struct Changed {
    old: u64,
    new: u64,
    change: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    change_low: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    change_high: Option<i64>,
    fate: &'static str,
    is_noise: bool,
}

#[derive(Serialize)]
struct Line {
    name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    callers: Vec<String>,
    #[serde(flatten)]
    changed: Changed,
    old_totals: Counters,
    new_totals: Counters,
}

pub(super) fn write(
    old: &Side<'_>,
    new: &Side<'_>,
    options: &DiffOptions,
    out: &mut dyn Write,
) -> Result<(), OutputError> {
    let DiffOptions { metric, by, .. } = *options;
    let rows = rows(old, new, metric, by);
    let summary = Summary::of(&rows);
    let totals = |side: &Side<'_>| side.input.profile.totals;
    let total = Change::of(
        metric,
        (&totals(old), &old.intervals),
        (&totals(new), &new.intervals),
    );
    let sums = Fate::ALL.map(Fate::name).into_iter().zip(summary.by_fate);
    let sums = sums.chain([("noise", summary.noise)]);
    let top = options.top.unwrap_or(usize::MAX);
    let line = |row: Row| Line {
        name: row.name,
        callers: row.callers,
        changed: changed(&row.change),
        old_totals: Counters::new(&row.old, &old.intervals),
        new_totals: Counters::new(&row.new, &new.intervals),
    };
    let difference = Difference {
        schema: 1,
        metric: metric.name(),
        by: by.name(),
        old: run(old),
        new: run(new),
        total: changed(&total),
        summary: sums
            .map(|(fate, sum)| Sum {
                fate,
                rows: sum.rows,
                change: signed(sum.change),
            })
            .collect(),
        in_common: summary.in_common,
        rows: rows.into_iter().take(top).map(line).collect(),
    };
    Ok(write_line(&difference, out)?)
}

fn run<'a>(side: &Side<'a>) -> Run<'a> {
    let profile = side.input.profile;
    Run {
        file: side.name,
        since_mark: side.input.since.map(|mark| mark.number),
        target: &profile.info.target,
        mode: profile.chosen(),
        duration_ns: profile.duration_ns,
        warnings: side.input.warnings,
        filters: side.input.filters.iter().map(Filter::in_full).collect(),
        totals: Counters::new(&profile.totals, &side.intervals),
    }
}

fn changed(change: &Change) -> Changed {
    Changed {
        old: change.old,
        new: change.new,
        change: signed(change.value()),
        change_low: change.range.map(|(low, _)| signed(low)),
        change_high: change.range.map(|(_, high)| signed(high)),
        fate: change.fate().name(),
        is_noise: change.is_noise(),
    }
}

fn signed(value: i128) -> i64 {
    value.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}
