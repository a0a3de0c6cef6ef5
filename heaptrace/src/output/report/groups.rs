//! The table of groups.
//!
//! Stage: output.

use std::io::{self, Write};

use super::amount::Amount;
use super::page::ReportOptions;
use super::{paragraph, stack};
use crate::output::grouping::Grouping;
use crate::output::groups::{Group, groups, peaks_are_own};
use crate::output::interval::Intervals;
use crate::output::label::Label;
use crate::output::metric::Metric;
use crate::output::report_input::ReportInput;
use crate::output::shorten;
use crate::output::style::Style;
use crate::text::{bytes, count, escape, share};

/// The smallest width of the name column.
const MIN_NAME: usize = 24;

/// The width of the name column for which other columns are left out: for functions and their like, and for
/// processes and theirs.
const LONG_NAME: usize = 40;
const SHORT_NAME: usize = 24;

/// The largest width of the name column.
const MAX_NAME: usize = 200;

/// The counters that every table shows.
const OTHERS: [(&str, Metric); 5] = [
    ("LIVE", Metric::LiveBytes),
    ("LEFT AT EXIT", Metric::LeftBytes),
    ("BLOCKS", Metric::LiveAllocations),
    ("ALLOCATED", Metric::TotalBytes),
    ("ALLOCATIONS", Metric::TotalAllocations),
];

/// Writes the groups with the largest values of a metric.
pub(super) fn write(
    out: &mut dyn Write,
    input: &ReportInput<'_>,
    grouping: Grouping,
    intervals: &Intervals,
    width: Option<usize>,
    style: Style,
) -> io::Result<()> {
    let Grouping { by, metric, .. } = grouping;
    let (groups, all) = groups(input, grouping);
    if groups.is_empty() {
        let heading = format!("No site has any {}", metric.title());
        return writeln!(out, "{}\n", style.bold(&heading));
    }
    // Peaks at different times have no common whole.
    let at_own_peaks = metric == Metric::PeakBytes && peaks_are_own(input, by);
    let heading = format!(
        "Top {} of {} {} by {}{}",
        count(groups.len() as u64),
        count(all as u64),
        by.plural(),
        metric.title(),
        if at_own_peaks { " of each process" } else { "" }
    );
    writeln!(out, "{}\n", style.bold(&heading))?;
    let whole = if at_own_peaks {
        0
    } else {
        metric.of(&input.profile.totals)
    };
    let is_cumulative = groups.iter().any(|group| group.cumulative.is_some());
    let mut heads = vec![if is_cumulative { "ITSELF" } else { "" }, "SHARE"];
    if is_cumulative {
        heads.extend(["IN STACK", "SHARE"]);
    }
    let is_estimate = groups
        .iter()
        .any(|group| Amount::new(intervals, metric, &group.totals).is_estimate());
    heads.extend(is_estimate.then_some("RANGE"));
    // The ranking metric has its own column already.
    let mut others: Vec<_> = OTHERS.iter().filter(|(_, it)| *it != metric).collect();
    let has = |it: Metric| it.of(&input.profile.totals) > 0;
    if has(Metric::LeftBytes) && !has(Metric::LiveBytes) {
        // All processes have ended.
        others.retain(|(_, it)| !it.is_live());
    } else if !has(Metric::LeftBytes) {
        others.retain(|(_, it)| !matches!(it, Metric::LeftBytes));
    }
    // Names need the width more than the last columns do.
    others.truncate(columns(width, by, is_cumulative, others.len()));
    heads.extend(others.iter().map(|(head, _)| *head));
    let in_processes = by != Label::Pid && input.profile.processes.len() > 1;
    if in_processes {
        heads.push("PROCESSES");
    }
    let has_uncertain = groups.iter().any(|group| group.uncertain_bytes() > 0);
    let has_pauses = groups.iter().any(|group| group.covered.is_some());
    heads.extend(has_uncertain.then_some("PERHAPS MORE"));
    heads.extend(has_pauses.then_some("COVERED"));
    let title = metric.name().to_uppercase().replace('-', " ");
    if let Some(first) = heads.first_mut().filter(|head| head.is_empty()) {
        *first = &title;
    }
    let rows: Vec<Vec<String>> = groups
        .iter()
        .map(|group| {
            let totals = &group.totals;
            let value = metric.of(totals);
            let amount = Amount::new(intervals, metric, totals);
            let mut row = vec![amount.value().replace("below ", "<"), share(value, whole)];
            if is_cumulative {
                let value = group.cumulative.map_or(0, |totals| metric.of(&totals));
                row.extend([metric.format(value), share(value, whole)]);
            }
            if is_estimate {
                row.push(amount.range().unwrap_or_default());
            }
            row.extend(others.iter().map(|(_, it)| it.format(it.of(totals))));
            if in_processes {
                row.push(count(group.processes));
            }
            if has_uncertain {
                row.push(bytes(group.uncertain_bytes()));
            }
            if has_pauses {
                row.push(covered(group));
            }
            row
        })
        .collect();
    let widths: Vec<usize> = heads
        .iter()
        .enumerate()
        .map(|(column, head)| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells
                .map(|cell| cell.chars().count())
                .fold(head.len(), usize::max)
        })
        .collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| -> String {
        cells
            .zip(&widths)
            .map(|(cell, width)| format!("  {cell:>width$}"))
            .collect()
    };
    let head = line(&mut heads.iter().copied());
    let name = by.name().to_uppercase();
    writeln!(out, "{}", style.dim(&format!("{head}  {name}")))?;
    let taken = head.chars().count() + 2;
    // A file has no width limit.
    let room = width.map_or(MAX_NAME, |width| width.saturating_sub(taken).max(MIN_NAME));
    for (group, row) in groups.iter().zip(&rows) {
        let cells = line(&mut row.iter().map(String::as_str));
        let title = group.title();
        let name = group.source_title(room).unwrap_or_else(|| match by {
            Label::Function | Label::Stack => {
                input.fitted(&escape(&input.for_people(&title)), room)
            }
            Label::Type | Label::Element => input.fitted_type(&escape(&title), room),
            _ => shorten::cut_front(&escape(&title), room),
        });
        writeln!(out, "{cells}  {name}")?;
        if let Some(id) = group.stack {
            for line in stack::lines(input, id, width.unwrap_or(ReportOptions::WIDTH), style) {
                writeln!(out, "     {line}")?;
            }
            writeln!(out)?;
        }
    }
    let mut notes = Vec::new();
    if is_cumulative {
        notes.push(match by {
            Label::Module => {
                "itself: allocations by code of the file; in stack: also by code that it called"
            }
            _ => "itself: allocations made there; in stack: also by functions called from there",
        });
    }
    if has_uncertain {
        notes.push("perhaps more: live before a pause, and perhaps freed during it");
    }
    if has_pauses {
        notes.push("covered: the share of time in which it was probed, since its first pause");
    }
    for note in &notes {
        writeln!(out, "  {}", style.dim(note))?;
    }
    if by.is_of_type() {
        let words = format!("found: {}", input.type_shares(metric).words());
        for line in paragraph::lines("  ", &words, width.unwrap_or(ReportOptions::WIDTH)) {
            writeln!(out, "{}", style.dim(&line))?;
        }
    }
    // Stacks end with an empty line already.
    if by == Label::Stack && notes.is_empty() {
        return Ok(());
    }
    writeln!(out)
}

/// The number of counters beside the ranking metric that leave enough width for names.
fn columns(width: Option<usize>, by: Label, is_cumulative: bool, all: usize) -> usize {
    const COLUMN: usize = 12;
    let wanted = if by.is_of_stack() {
        LONG_NAME
    } else {
        SHORT_NAME
    };
    let fixed = if is_cumulative { 4 } else { 2 };
    let Some(width) = width else {
        return all;
    };
    (width.saturating_sub(wanted) / COLUMN)
        .saturating_sub(fixed)
        .min(all)
}

/// The share of time in which the processes of a group were probed.
fn covered(group: &Group) -> String {
    match group.covered {
        Some(it) => share(it.probed_ns, it.since_ns),
        None => "100.0 %".to_owned(),
    }
}
