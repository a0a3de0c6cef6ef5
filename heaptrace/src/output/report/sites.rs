//! The sites of a report, the largest first, each with its stack.
//!
//! Stage: output.

use std::io;

use super::amount::Amount;
use super::page::Page;
use super::{duty_cycle, groups, histogram, paragraph, site_type, stack};
use crate::join::{Kind, Site, Totals};
use crate::output::grouping::Grouping;
use crate::output::report_input::process_label;
use crate::output::shorten;
use crate::text::{bytes, count, counted, escape, share};

/// Writes the sites, or their groups if grouping is requested.
pub(super) fn write(page: &mut Page<'_, '_>) -> io::Result<()> {
    if let Some(grouping) = page.input.grouping {
        let grouping = Grouping {
            top: Some(page.options.top),
            ..grouping
        };
        let width = page.options.width.map(|_| page.width);
        return groups::write(
            page.out,
            page.input,
            grouping,
            &page.intervals,
            width,
            page.style,
        );
    }
    let metric = page.options.metric;
    let sites = page.input.sites_by(metric);
    if sites.is_empty() {
        let heading = format!("No site has any {}", metric.title());
        writeln!(page.out, "{}\n", page.style.bold(&heading))?;
        return Ok(());
    }
    if page.options.histogram {
        histogram::of_all(page)?;
    }
    let shown = sites.len().min(page.options.top);
    let heading = format!(
        "Top {} of {} by {}",
        count(shown as u64),
        counted(sites.len() as u64, "site", "sites"),
        metric.title()
    );
    writeln!(page.out, "{}\n", page.style.bold(&heading))?;
    for (rank, (site, value)) in sites.into_iter().take(shown).enumerate() {
        write_site(page, rank + 1, site, value)?;
    }
    if page.input.has_types() {
        let words = page.input.type_shares(metric).words();
        let words = format!("types, of {}: {words}", metric.title());
        for line in paragraph::lines("", &words, page.width) {
            writeln!(page.out, "{}", page.style.dim(&line))?;
        }
        writeln!(page.out)?;
    }
    Ok(())
}

fn write_site(page: &mut Page<'_, '_>, rank: usize, site: &Site, value: u64) -> io::Result<()> {
    let metric = page.options.metric;
    let part = share(value, metric.of(&page.input.profile.totals));
    let amount = Amount::new(&page.intervals, metric, &site.totals);
    let uncertain = metric.uncertain(&site.totals);
    let value = match amount.range() {
        Some(range) => format!("{} ({part}, {range})", amount.value()),
        None if value == 0 && uncertain > 0 => {
            format!("perhaps {} (paused)", metric.format(uncertain))
        }
        None => format!("{} ({part})", amount.value()),
    };
    let process = page.input.process(site);
    let covered = process.and_then(|it| duty_cycle::covered(it, page.input.profile.duration_ns));
    let is_ended = process.is_some_and(|it| it.ended);
    let process = match process {
        Some(process) if page.input.profile.processes.len() > 1 => {
            format!("in {}", process_label(process))
        }
        _ => String::new(),
    };
    let thread = page.input.thread(site).map(escape);
    let thread = thread.map_or_else(String::new, |name| format!("by thread {name}"));
    let kind = match site.kind {
        Kind::Heap => String::new(),
        Kind::Mapped => "mapped (mmap)".to_owned(),
    };
    stack::write_title(page, rank, &value, site.stack)?;
    let totals = site_totals(&site.totals, is_ended, page.input.has_freed());
    let parts = [totals, kind, process, covered.unwrap_or_default(), thread];
    for line in wrapped(parts, page.width) {
        writeln!(page.out, "     {line}")?;
    }
    let room = page.width.saturating_sub(stack::INDENT);
    for line in wrapped(site_type::of_site(page.input, site, room), page.width) {
        writeln!(page.out, "     {line}")?;
    }
    if page.options.histogram {
        for line in stack::lines(page.input, site.stack, page.width, page.style) {
            writeln!(page.out, "     {line}")?;
        }
        histogram::of_site(page, site)?;
        return writeln!(page.out);
    }
    stack::write_frames(page, site.stack)
}

/// The parts that are not empty, in as many lines as they need at a width.
fn wrapped<const N: usize>(parts: [String; N], width: usize) -> Vec<String> {
    const BETWEEN: &str = "  ";
    let room = width.saturating_sub(stack::INDENT);
    let mut lines: Vec<String> = Vec::new();
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        let part = shorten::cut_middle(&part, room);
        match lines.last_mut() {
            Some(line) if line.chars().count() + BETWEEN.len() + part.chars().count() <= room => {
                line.push_str(BETWEEN);
                line.push_str(&part);
            }
            _ => lines.push(part),
        }
    }
    lines
}

fn site_totals(totals: &Totals, is_ended: bool, has_freed: bool) -> String {
    let mut parts = Vec::new();
    if totals.live_allocations > 0 || totals.uncertain_allocations > 0 || !is_ended {
        parts.push(format!(
            "live {} in {}{}",
            bytes(totals.live_bytes),
            count(totals.live_allocations),
            duty_cycle::uncertain_suffix(totals),
        ));
    }
    if totals.left_allocations > 0 {
        let (size, blocks) = (bytes(totals.left_bytes), count(totals.left_allocations));
        parts.push(format!("left at exit {size} in {blocks}"));
    }
    if has_freed {
        let (size, blocks) = (bytes(totals.allocated_bytes), count(totals.allocations));
        parts.push(format!("allocated {size} in {blocks}"));
    }
    parts.join(", ")
}
