//! The totals of a run, at the top of a report.
//!
//! Stage: output.

use std::io;

use super::amount::Amount;
use super::duty_cycle;
use super::page::Page;
use crate::output::filter::Filter;
use crate::output::metric::Metric;
use crate::text::{bytes, count, share};

/// Writes the totals that every reader needs; with details, all of them.
pub(super) fn write(page: &mut Page<'_, '_>) -> io::Result<()> {
    let totals = page.input.profile.totals;
    let processes = &page.input.profile.processes;
    let has_running = processes.is_empty() || processes.iter().any(|it| !it.ended);
    let details = page.options.details;
    // Otherwise it stands beside the resident memory.
    let alone = details || page.input.resident() == 0;
    if has_running || details || totals.live_bytes > 0 {
        line(
            page,
            "live",
            Metric::LiveBytes,
            Some(Metric::LiveAllocations),
        )?;
        if let Some(mapped) = page.input.mapped().filter(|_| alone) {
            let text = format!("in {} mappings", count(mapped.live_allocations));
            page.number("  mapped", &bytes(mapped.live_bytes), &text)?;
        }
    }
    if totals.left_allocations > 0 {
        line(
            page,
            "left at exit",
            Metric::LeftBytes,
            Some(Metric::LeftAllocations),
        )?;
    }
    duty_cycle::uncertain(page)?;
    // The peak is that of the run: a part of it may have held more at another time.
    let is_part = page.input.filters.iter().any(Filter::selects_sites);
    let name = if is_part { "at the peak" } else { "peak" };
    if page.input.has_peaks() {
        line(page, name, Metric::PeakBytes, None)?;
    }
    if !page.input.has_freed() {
        return Ok(());
    }
    line(
        page,
        "allocated",
        Metric::TotalBytes,
        Some(Metric::TotalAllocations),
    )?;
    if details {
        let text = format!("in {} blocks", count(totals.frees));
        page.number("freed", &bytes(totals.freed_bytes), &text)?;
        if page.input.chosen_blocks.is_some() {
            return Ok(());
        }
        let lacking = match page.input.profile.info.is_partial() {
            true => ", without those that others replaced",
            false => "",
        };
        let text = format!(
            "of all allocations ({}) were freed at once{lacking}",
            count(totals.temporary_allocations)
        );
        let temporary = share(totals.temporary_allocations, totals.allocations);
        page.number("temporary", &temporary, &text)?;
    }
    Ok(())
}

fn line(
    page: &mut Page<'_, '_>,
    name: &str,
    size: Metric,
    blocks: Option<Metric>,
) -> io::Result<()> {
    let totals = &page.input.profile.totals;
    let amount = Amount::new(&page.intervals, size, totals);
    let mut words = Vec::new();
    if let Some(range) = amount.range() {
        words.push(format!("({range})"));
    } else if page.options.details && !amount.is_estimate() && size.of(totals) >= 1024 {
        // Below 1 KiB the unit is exact.
        words.push(format!("{} bytes", count(size.of(totals))));
    }
    if let Some(metric) = blocks {
        let blocks = Amount::new(&page.intervals, metric, totals);
        words.push(match (metric.of(totals), blocks.is_estimate()) {
            (1, false) => "in 1 block".to_owned(),
            (n, false) => format!("in {} blocks", count(n)),
            (0, true) => String::new(),
            (n, true) => format!("in about {} blocks", count(n)),
        });
    }
    words.retain(|word| !word.is_empty());
    page.number(name, &amount.value(), &words.join("  "))
}
