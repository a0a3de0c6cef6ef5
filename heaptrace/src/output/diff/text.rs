//! A difference for people.
//!
//! Stage: output.

use std::io::Write;

use super::change::{Change, Fate};
use super::rows::{Row, Summary, rows};
use super::side::{DiffOptions, Side};
use crate::output::error::OutputError;
use crate::output::label::Label;
use crate::output::metric::Metric;
use crate::output::style::Style;
use crate::output::{shorten, type_name};
use crate::text::{count, escape};

/// The number of rows if the user chose none.
const TOP: usize = 10;

/// The most callers of a stack that are shown.
const MOST_CALLERS: usize = 8;

/// The width where there is no terminal.
const WIDTH: usize = 100;

/// The metrics whose totals are compared, besides the one that was asked for.
const TOTALS: [Metric; 4] = [
    Metric::LiveBytes,
    Metric::LeftBytes,
    Metric::PeakBytes,
    Metric::TotalBytes,
];

pub(super) fn write(
    old: &Side<'_>,
    new: &Side<'_>,
    options: &DiffOptions,
    out: &mut dyn Write,
) -> Result<(), OutputError> {
    let style = Style::new(options.color);
    let width = options.width.unwrap_or(WIDTH).max(40);
    for (word, side) in [("old", old), ("new", new)] {
        let profile = side.input.profile;
        let name = escape(side.name);
        let target = escape(&profile.info.target);
        let line = format!("{word}  {name}  ({target}, {})", profile.chosen());
        writeln!(out, "{}", style.bold(&shorten::cut_middle(&line, width)))?;
        for warning in side.input.warnings {
            let warning = format!("     warning: {}", escape(warning));
            writeln!(out, "{}", style.warning(&warning))?;
        }
        if let Some(only) = side.input.only() {
            writeln!(out, "     {only}")?;
        }
    }
    writeln!(out)?;
    totals(old, new, options.metric, style, out)?;
    writeln!(out)?;
    let rows = rows(old, new, options.metric, options.by);
    summary(&rows, options, style, out)?;
    let changed = rows
        .iter()
        .filter(|row| row.change.fate() != Fate::Same && !row.change.is_noise());
    let top = options.top.unwrap_or(TOP);
    let all = changed.clone().count();
    for row in changed.take(top) {
        write_row(row, options, width, style, out)?;
    }
    if all > top {
        let rest = count((all - top) as u64);
        writeln!(
            out,
            "{}",
            style.dim(&format!("… {rest} more; --top shows more"))
        )?;
    }
    Ok(())
}

/// Writes the totals of both runs.
fn totals(
    old: &Side<'_>,
    new: &Side<'_>,
    metric: Metric,
    style: Style,
    out: &mut dyn Write,
) -> Result<(), OutputError> {
    let (was, is) = (&old.input.profile.totals, &new.input.profile.totals);
    let others = TOTALS.into_iter().filter(|it| *it != metric);
    for metric in [metric].into_iter().chain(others) {
        let change = Change::of(metric, (was, &old.intervals), (is, &new.intervals));
        if change.old == 0 && change.new == 0 {
            continue;
        }
        let (from, to) = (metric.format(change.old), metric.format(change.new));
        writeln!(
            out,
            "  {:<24} {from:>10} → {to:>10}   {}",
            metric.title(),
            words(&change, metric, style)
        )?;
    }
    Ok(())
}

/// Writes how much grew, shrank and so on.
fn summary(
    rows: &[Row],
    options: &DiffOptions,
    style: Style,
    out: &mut dyn Write,
) -> Result<(), OutputError> {
    let DiffOptions { metric, by, .. } = *options;
    let summary = Summary::of(rows);
    let heading = format!("{} by change of {}", plural(by), metric.title());
    writeln!(out, "{}\n", style.bold(&heading))?;
    for (fate, sum) in Fate::ALL.into_iter().zip(summary.by_fate) {
        let (name, rows) = (fate.name(), count(sum.rows));
        match fate {
            _ if sum.rows == 0 => {}
            Fate::Same => writeln!(out, "  {name:<10} {rows:>6}")?,
            _ => {
                let change = colored(sum.change, metric, style);
                writeln!(out, "  {name:<10} {rows:>6}  {change}")?;
            }
        }
    }
    let noise = summary.noise;
    if noise.rows > 0 {
        let change = signed(noise.change, metric);
        let words = "within the errors of the samples, so chance can explain each; not shown below";
        writeln!(
            out,
            "  {:<10} {:>6}  {change}, {words}",
            "noise",
            count(noise.rows)
        )?;
    }
    let common = metric.format(summary.in_common);
    writeln!(out, "  {:<10} {:>6}  {common}\n", "in common", "")?;
    Ok(())
}

fn write_row(
    row: &Row,
    options: &DiffOptions,
    width: usize,
    style: Style,
    out: &mut dyn Write,
) -> Result<(), OutputError> {
    let change = &row.change;
    let metric = options.metric;
    let (from, to) = (metric.format(change.old), metric.format(change.new));
    let room = width.saturating_sub(24);
    let name = match options.by.is_of_type() {
        true => type_name::fitted(&row.name, room),
        false => shorten::function(&row.name, room),
    };
    let fate = change.fate().name();
    let value = colored(change.value(), metric, style);
    // A style has no width.
    let gap = " ".repeat(12_usize.saturating_sub(signed(change.value(), metric).chars().count()));
    writeln!(out, "{gap}{value}  {fate:<6}  {name}")?;
    let range = range(change, metric).map_or_else(String::new, |range| format!(", {range}"));
    writeln!(
        out,
        "{:14}{}",
        "",
        style.dim(&format!("{from} → {to}{range}"))
    )?;
    for caller in row.callers.iter().take(MOST_CALLERS) {
        let caller = shorten::function(caller, width.saturating_sub(16));
        writeln!(out, "{:14}< {caller}", "")?;
    }
    if row.callers.len() > MOST_CALLERS {
        let rest = row.callers.len() - MOST_CALLERS;
        writeln!(
            out,
            "{:14}{}",
            "",
            style.dim(&format!("… {rest} more callers"))
        )?;
    }
    Ok(())
}

/// A change, its part of the old value, and its range: `+1.2 MiB (+12.0 %, +1.0 to +1.4 MiB)`.
fn words(change: &Change, metric: Metric, style: Style) -> String {
    let part = (change.old > 0 && change.value() != 0).then(|| {
        let part = change.value() as f64 / change.old as f64 * 100.0;
        format!("{part:+.1} %").replace('-', "−")
    });
    let noise = change
        .is_noise()
        .then(|| "chance can explain it".to_owned());
    let parts = [part, range(change, metric), noise];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    let value = colored(change.value(), metric, style);
    match parts.is_empty() {
        true => value,
        false => format!("{value} ({})", parts.join(", ")),
    }
}

fn range(change: &Change, metric: Metric) -> Option<String> {
    let (low, high) = change.range?;
    Some(format!(
        "{} to {}",
        signed(low, metric),
        signed(high, metric)
    ))
}

/// A change in red if it is more, in blue if it is less, as in the flame graph.
fn colored(change: i128, metric: Metric, style: Style) -> String {
    let text = signed(change, metric);
    match change {
        0 => text,
        more if more > 0 => style.more(&text),
        _ => style.less(&text),
    }
}

fn signed(change: i128, metric: Metric) -> String {
    let size = u64::try_from(change.unsigned_abs()).unwrap_or(u64::MAX);
    let sign = match change {
        0 => "",
        more if more > 0 => "+",
        _ => "−",
    };
    format!("{sign}{}", metric.format(size))
}

fn plural(by: Label) -> String {
    let plural = by.plural();
    let mut letters = plural.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}
