//! The table of groups.
//!
//! Stage: output.

use std::io::{self, Write};

use super::page::DEFAULT_WIDTH;
use super::stack;
use super::style::Style;
use crate::output::grouping::Grouping;
use crate::output::groups::groups;
use crate::output::label::Label;
use crate::output::metric::Metric;
use crate::output::report_input::ReportInput;
use crate::output::shorten;
use crate::text::{count, escape, share};

/// The smallest width of the name column.
const MIN_NAME: usize = 24;

/// The largest width of the name column.
const MAX_NAME: usize = 200;

/// The counters that every table shows.
const OTHERS: [(&str, Metric); 4] = [
    ("LIVE", Metric::LiveBytes),
    ("BLOCKS", Metric::LiveAllocations),
    ("ALLOCATED", Metric::TotalBytes),
    ("ALLOCATIONS", Metric::TotalAllocations),
];

/// Writes the groups with the largest values of a metric.
pub(super) fn write(
    out: &mut dyn Write,
    input: &ReportInput<'_>,
    grouping: Grouping,
    width: Option<usize>,
    style: Style,
) -> io::Result<()> {
    let Grouping { by, metric, .. } = grouping;
    let (groups, all) = groups(input, grouping);
    if groups.is_empty() {
        let heading = format!("No site has any {}", metric.title());
        return writeln!(out, "{}\n", style.bold(&heading));
    }
    let heading = format!(
        "Top {} of {} {} by {}",
        count(groups.len() as u64),
        count(all as u64),
        by.plural(),
        metric.title()
    );
    writeln!(out, "{}\n", style.bold(&heading))?;
    let whole = metric.of(&input.profile.totals);
    let is_cumulative = groups.iter().any(|group| group.cumulative.is_some());
    let mut heads = vec![if is_cumulative { "ITSELF" } else { "" }, "SHARE"];
    if is_cumulative {
        heads.extend(["IN STACK", "SHARE"]);
    }
    // The ranking metric has its own column already.
    let others: Vec<_> = OTHERS.iter().filter(|(_, it)| *it != metric).collect();
    heads.extend(others.iter().map(|(head, _)| *head));
    let in_processes = by != Label::Pid && input.profile.processes.len() > 1;
    if in_processes {
        heads.push("PROCESSES");
    }
    let title = metric.name().to_uppercase().replace('-', " ");
    if let Some(first) = heads.first_mut().filter(|head| head.is_empty()) {
        *first = &title;
    }
    let rows: Vec<Vec<String>> = groups
        .iter()
        .map(|group| {
            let totals = &group.totals;
            let value = metric.of(totals);
            let mut row = vec![metric.format(value), share(value, whole)];
            if is_cumulative {
                let value = group.cumulative.map_or(0, |totals| metric.of(&totals));
                row.extend([metric.format(value), share(value, whole)]);
            }
            row.extend(others.iter().map(|(_, it)| it.format(it.of(totals))));
            if in_processes {
                row.push(count(group.processes));
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
        let name = escape(&group.name);
        let name = match by {
            Label::Function | Label::Stack => shorten::function(&name, room),
            _ => shorten::cut_front(&name, room),
        };
        writeln!(out, "{cells}  {name}")?;
        if let Some(id) = group.stack {
            for line in stack::lines(input, id, width.unwrap_or(DEFAULT_WIDTH), style) {
                writeln!(out, "     {line}")?;
            }
            writeln!(out)?;
        }
    }
    if by == Label::Stack {
        return Ok(());
    }
    if is_cumulative {
        let note = match by {
            Label::Module => {
                "itself: allocations by code of the file; in stack: also by code that it called"
            }
            _ => "itself: allocations made there; in stack: also by functions called from there",
        };
        writeln!(out, "  {}", style.dim(note))?;
    }
    writeln!(out)
}
