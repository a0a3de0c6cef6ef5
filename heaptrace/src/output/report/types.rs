//! The types of a run for people: a table, and where each type is made.
//!
//! Stage: output.

use std::io::{self, Write};

use super::amount::Amount;
use super::page::{Page, ReportOptions};
use super::{header, paragraph, site_type, stack, verdict};
use crate::output::error::OutputError;
use crate::output::label::Label;
use crate::output::metric::Metric;
use crate::output::report_input::ReportInput;
use crate::output::site_types::{Blocks, UNKNOWN, found_by};
use crate::output::types::{TypeRow, TypesFound};
use crate::profile::LiveClass;
use crate::text::{bytes, count, escape, lifetime, share};

/// The indent of the lines below a name.
const INDENT: usize = 5;

/// Writes the types.
pub fn write_types(
    input: &ReportInput<'_>,
    found: &TypesFound,
    options: &ReportOptions,
    out: &mut dyn Write,
) -> Result<(), OutputError> {
    let page = &mut Page::new(input, options, out);
    header::write(page)?;
    header::not_ended(page)?;
    table(page, found)?;
    classes(page)?;
    notes(page, found)?;
    verdict::problems(page)?;
    Ok(())
}

/// The columns of a table.
struct Columns {
    metrics: Vec<(&'static str, Metric)>,
    /// The blocks whose number and elements are shown.
    blocks: Blocks,
    has_lifetimes: bool,
}

impl Columns {
    fn of(input: &ReportInput<'_>, found: &TypesFound) -> Self {
        let totals = &input.profile.totals;
        let (unfreed, name, blocks) = match Metric::unfreed(input.profile) {
            Metric::LeftBytes => (Metric::LeftBytes, "LEFT AT EXIT", Blocks::Left),
            other => (other, "LIVE", Blocks::Live),
        };
        let usual = [
            (name, unfreed),
            ("AT PEAK", Metric::PeakBytes),
            ("TOTAL", Metric::TotalBytes),
        ];
        let ranking = usual.into_iter().find(|it| it.1 == found.metric);
        // A metric without a column of its own comes first.
        let ranking = ranking.unwrap_or((short(found.metric), found.metric));
        let others = usual.into_iter().filter(|it| it.1 != found.metric);
        Self {
            metrics: std::iter::once(ranking).chain(others).collect(),
            // Once everything is freed, what there was is shown.
            blocks: match unfreed.of(totals) {
                0 => Blocks::Allocated,
                _ => blocks,
            },
            has_lifetimes: found.has_lifetimes,
        }
    }

    fn heads(&self) -> Vec<String> {
        let mut heads: Vec<_> = self.metrics.iter().map(|it| it.0.to_owned()).collect();
        heads.insert(1, "SHARE".to_owned());
        heads.extend(["BLOCKS", "ELEMENTS", "LIFETIME"].map(str::to_owned));
        heads
    }

    fn cells(&self, page: &Page<'_, '_>, row: &TypeRow) -> Vec<String> {
        let totals = &row.totals;
        let whole = &page.input.profile.totals;
        let of = |metric: Metric| Amount::new(&page.intervals, metric, totals).value();
        let mut cells: Vec<_> = self
            .metrics
            .iter()
            .map(|(_, metric)| of(*metric).replace("below ", "<"))
            .collect();
        if let Some((_, metric)) = self.metrics.first() {
            let part = share(metric.of(totals), metric.of(whole));
            cells.insert(1, part);
        }
        let blocks = match self.blocks {
            Blocks::Live => totals.live_allocations,
            Blocks::Left => totals.left_allocations,
            Blocks::Allocated => totals.allocations,
        };
        cells.push(count(blocks));
        let elements = row.counted.of(self.blocks).filter(|_| row.is_known);
        cells.push(elements.map_or_else(dash, |number| {
            let room = if row.is_capacity { "room for " } else { "" };
            format!("{room}{}", site_type::number_words(number))
        }));
        let known = row.lifetime.filter(|_| self.has_lifetimes);
        cells.push(known.map_or_else(dash, |(_, mean)| format!("~{}", lifetime(mean))));
        cells
    }
}

fn dash() -> String {
    "–".to_owned()
}

/// The head of a column that no other table has.
fn short(metric: Metric) -> &'static str {
    match metric {
        Metric::LiveBytes => "LIVE",
        Metric::LiveAllocations => "LIVE BLOCKS",
        Metric::LeftBytes => "LEFT AT EXIT",
        Metric::LeftAllocations => "LEFT BLOCKS",
        Metric::TotalBytes => "TOTAL",
        Metric::TotalAllocations => "ALLOCATIONS",
        Metric::PeakBytes => "AT PEAK",
        Metric::Temporary => "TEMPORARY",
    }
}

fn table(page: &mut Page<'_, '_>, found: &TypesFound) -> io::Result<()> {
    let known = found.rows.iter().filter(|row| row.is_known).count();
    let heading = format!(
        "Top {} of {} {} by {}",
        count(known as u64),
        count(found.all as u64),
        found.by.plural(),
        found.metric.title()
    );
    writeln!(page.out, "{}\n", page.style.bold(&heading))?;
    let columns = Columns::of(page.input, found);
    let mut heads = columns.heads();
    let rows = found.rows.iter().map(|row| columns.cells(page, row));
    let mut rows: Vec<_> = rows.collect();
    let mut widths = widths(&heads, &rows);
    // On a narrow terminal, what is not recorded goes first, then what other commands show.
    let lifetimes = "LIFETIME";
    let spare = [lifetimes, "AT PEAK", "TOTAL", lifetimes];
    let spare = spare.into_iter().skip(found.has_lifetimes.into());
    for name in spare {
        let taken: usize = widths.iter().map(|width| width + 2).sum();
        if taken + 3 <= page.width {
            break;
        }
        // The first column has what types are ranked by.
        let column = heads.iter().skip(1).position(|head| head == name);
        if let Some(column) = column.map(|at| at + 1) {
            heads.remove(column);
            widths.remove(column);
            rows.iter_mut().for_each(|row| {
                row.remove(column);
            });
        }
    }
    let line = |cells: &[String]| -> String {
        let cells = cells.iter().zip(&widths);
        let line: String = cells
            .map(|(cell, width)| format!("  {cell:>width$}"))
            .collect();
        format!("   {line}")
    };
    writeln!(page.out, "{}", page.style.dim(&line(&heads)))?;
    for (rank, (row, cells)) in found.rows.iter().zip(&rows).enumerate() {
        name(page, found, rank + 1, row)?;
        writeln!(page.out, "{}", line(cells))?;
        if let Some(stack) = row.made_by {
            made_by(page, row, stack)?;
        }
    }
    writeln!(page.out)
}

/// The widths of columns.
fn widths(heads: &[String], rows: &[Vec<String>]) -> Vec<usize> {
    let heads = heads.iter().enumerate();
    heads
        .map(|(column, head)| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            let widths = cells.map(|cell| cell.chars().count());
            widths.fold(head.len(), usize::max)
        })
        .collect()
}

/// The line with the name of a type.
fn name(page: &mut Page<'_, '_>, found: &TypesFound, rank: usize, row: &TypeRow) -> io::Result<()> {
    let amount = Amount::new(&page.intervals, found.metric, &row.totals);
    let ways: Vec<_> = row.ways.iter().map(|way| found_by(*way)).collect();
    let notes: Vec<_> = [Some(ways.join(", ")), amount.range()]
        .into_iter()
        .flatten()
        .filter(|it| !it.is_empty())
        .collect();
    let notes = notes.join("; ");
    let room = page
        .width
        .saturating_sub(INDENT + 2 + notes.chars().count());
    let name = page.input.fitted_type(&escape(&row.name), room.max(24));
    let name = page.style.number(&name);
    let line = format!("{rank:>3}. {name}  {}", page.style.dim(&notes));
    writeln!(page.out, "{}", line.trim_end())
}

fn made_by(page: &mut Page<'_, '_>, row: &TypeRow, id: crate::join::StackId) -> io::Result<()> {
    let more = match row.stacks {
        0 | 1 => String::new(),
        2 => ", and one more stack".to_owned(),
        many => format!(", and {} more stacks", count(many - 1)),
    };
    let words = if row.is_known { "made by" } else { "most by" };
    let room = page
        .width
        .saturating_sub(INDENT + words.len() + 1 + more.len());
    let title = stack::title(page.input, id, room, page.style);
    writeln!(page.out, "{:INDENT$}{words} {title}{more}", "")
}

/// The classes of inspected live blocks, whichever stack allocated them.
fn classes(page: &mut Page<'_, '_>) -> io::Result<()> {
    let all = &page.input.symbols.types.classes;
    let (unknown, known): (Vec<_>, Vec<_>) = all.iter().partition(|it| it.name.is_empty());
    if known.is_empty() {
        return Ok(());
    }
    let which = match page.input.profile.info.mode.is_sampled() {
        true => "Sampled live blocks",
        false => "Live blocks",
    };
    let heading = format!("{which} by what was in them, when they were inspected last");
    writeln!(page.out, "{}\n", page.style.bold(&heading))?;
    let sum = |of: fn(&LiveClass) -> u64| {
        all.iter()
            .fold(0, |sum: u64, it| sum.saturating_add(of(it)))
    };
    let whole = sum(|it| it.bytes);
    writeln!(
        page.out,
        "{}",
        page.style.dim("        BYTES   SHARE    BLOCKS  CLASS")
    )?;
    let top = page.options.top;
    for class in known.iter().take(top).chain(&unknown) {
        let name = match class.name.as_str() {
            "" => UNKNOWN.to_owned(),
            name => page
                .input
                .fitted_type(&escape(name), page.width.saturating_sub(35).max(24)),
        };
        writeln!(
            page.out,
            "   {:>10}  {:>6}  {:>8}  {name}",
            bytes(class.bytes),
            share(class.bytes, whole),
            count(class.blocks)
        )?;
    }
    if known.len() > top {
        let more = count((known.len() - top) as u64);
        writeln!(
            page.out,
            "   and {more} more classes; --top {} shows all",
            known.len()
        )?;
    }
    writeln!(page.out)
}

/// What the numbers mean, and how much has no type.
fn notes(page: &mut Page<'_, '_>, found: &TypesFound) -> io::Result<()> {
    let by = found.metric.title();
    let mut notes = vec![format!("of {by}: {}", found.shares.words())];
    let columns = Columns::of(page.input, found);
    notes.push(format!(
        "blocks and elements: {}; room for: what a container has space for, whether it is used or not",
        match columns.blocks {
            Blocks::Live => "of what is live",
            Blocks::Left => "of what was left at exit",
            Blocks::Allocated => "of all that was allocated",
        }
    ));
    notes.push(match found.has_lifetimes {
        true => "lifetime: the mean of freed blocks".to_owned(),
        false => "lifetime: not recorded; record with --histogram".to_owned(),
    });
    if page.input.profile.info.mode.is_sampled() {
        notes.push(format!(
            "a sample: types of few or small blocks may be missing, ranges of {by} hold in 95 % of runs, and elements have their \
             standard error"
        ));
    }
    if !page.input.has_types() {
        notes.push(
            "no type is known: types are found by debug information and names of functions, when names are looked up".to_owned(),
        );
    }
    if found.by == Label::Element {
        notes
            .push("element: what blocks hold one or several of, in whichever container".to_owned());
    }
    for note in notes {
        for line in paragraph::lines("  ", &note, page.width) {
            writeln!(page.out, "{}", page.style.dim(&line))?;
        }
    }
    writeln!(page.out)
}
