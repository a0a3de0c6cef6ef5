//! Draws a flame graph as SVG, by inferno.
//!
//! Stage: output.

use std::io::Write;

use inferno::flamegraph::{self, Options};

use super::error::OutputError;
use super::folded;
use super::metric::Metric;
use super::report_input::ReportInput;
use crate::text;

/// The narrowest frame that is drawn, in percent of the graph's width: one pixel of a graph nine times as
/// wide as a screen.
const NARROWEST: f64 = 0.01;

/// Draws the stacks of a metric, the innermost frames at the top.
pub(super) fn write(
    input: &ReportInput<'_>,
    metric: Metric,
    out: &mut dyn Write,
) -> Result<(), OutputError> {
    let folded = folded::fold(input, metric, NARROWEST / 100.0)?;
    let lines = folded.lines();
    if lines.is_empty() {
        return Err(OutputError::Nothing {
            what: metric.title(),
        });
    }
    let mut options = Options::default();
    options.title = title(input, metric);
    options.subtitle = Some(subtitle(input, metric, folded.left_out));
    options.min_width = NARROWEST;
    options.count_name = if metric.is_bytes() {
        "bytes"
    } else {
        "allocations"
    }
    .to_owned();
    // A function has the same colour in every graph, so that graphs can be compared.
    options.deterministic = true;
    // Inferno keeps the order of the stacks only in this mode, reversed. Otherwise it sorts lines, and would
    // draw `f` twice because `f(` sorts between `f;` and `f `.
    options.flame_chart = true;
    // The SVG is built in memory, so that an error of the writer keeps its kind. A closed pipe is not
    // reported as an error.
    let mut svg = Vec::new();
    flamegraph::from_lines(
        &mut options,
        lines.iter().rev().map(String::as_str),
        &mut svg,
    )?;
    out.write_all(&svg)?;
    Ok(())
}

fn title(input: &ReportInput<'_>, metric: Metric) -> String {
    let mut target = text::escape(&input.profile.info.target).into_owned();
    const LONGEST: usize = 60;
    if target.chars().count() > LONGEST {
        target = target.chars().take(LONGEST).collect();
        target.push('…');
    }
    format!("heaptrace: {} of {target}", metric.title())
}

fn subtitle(input: &ReportInput<'_>, metric: Metric, left_out: u64) -> String {
    let totals = &input.profile.totals;
    let mode = input.profile.info.chosen();
    let mut subtitle = format!(
        "{mode} · live {} in {} · total {} in {} · peak {} · {}",
        text::bytes(totals.live_bytes),
        text::count(totals.live_allocations),
        text::bytes(totals.allocated_bytes),
        text::count(totals.allocations),
        text::bytes(totals.peak_live_bytes),
        text::duration(input.profile.duration_ns),
    );
    let lost: u64 = input
        .profile
        .quality
        .lost
        .values()
        .fold(0, |sum, n| sum.saturating_add(*n));
    if lost > 0 {
        subtitle.push_str(&format!(" · LOST {}", text::count(lost)));
    }
    if let Some(only) = input.only() {
        subtitle.push_str(&format!(" · {only}"));
    }
    if !input.warnings.is_empty() {
        subtitle.push_str(" · INCOMPLETE");
    }
    if metric.error(totals) > 0 {
        let error = metric.format(metric.error(totals));
        subtitle.push_str(&format!(" · standard error of {} {error}", metric.title()));
    }
    if left_out > 0 {
        let frames = text::count(left_out);
        subtitle.push_str(&format!(" · {frames} frames below {NARROWEST} % left out"));
    }
    subtitle
}
