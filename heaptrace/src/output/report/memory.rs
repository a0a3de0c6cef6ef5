//! The traced memory beside the memory that the kernel counts: how much of a process the report explains.
//!
//! Stage: output.

use std::cmp::Reverse;
use std::io;

use super::amount::Amount;
use super::page::Page;
use super::paragraph;
use crate::join::Kind;
use crate::output::filter::Filter;
use crate::output::metric::Metric;
use crate::output::report_input::process_label;
use crate::text::{bytes, share};

/// The largest number of ended processes that are named.
const MOST_NAMED: usize = 3;

/// A process with this part of the largest one's memory is not named.
const MUCH_SMALLER: u64 = 4;

/// Writes the resident memory of running processes, and the peaks of those that ended.
pub(super) fn write(page: &mut Page<'_, '_>) -> io::Result<()> {
    // A part of a process can't be compared with the whole.
    let is_part = page.input.filters.iter().any(Filter::selects_sites);
    if is_part || page.input.since.is_some() {
        return Ok(());
    }
    running(page)?;
    ended(page)
}

fn running(page: &mut Page<'_, '_>) -> io::Result<()> {
    let resident = page.input.resident();
    if resident == 0 {
        return Ok(());
    }
    let heap = page.input.of_kind(Kind::Heap);
    let mapped = page.input.of_kind(Kind::Mapped).live_bytes;
    let explained = heap.live_bytes.saturating_add(mapped);
    let heap = Amount::new(&page.intervals, Metric::LiveBytes, &heap);
    let sum = format!("heap {} + mapped {}", heap.value(), bytes(mapped));
    let running = page.input.profile.processes.iter().filter(|it| !it.ended);
    let before = running.fold(0, |sum: u64, it| {
        sum.saturating_add(it.memory.resident_before)
    });
    let text = if explained <= resident {
        let rest = resident - explained;
        let sources = if before > 0 {
            "before tracing, files, stacks"
        } else {
            "files, stacks, what allocators keep"
        };
        format!(
            "{sum} of {} resident; not explained: {} ({sources})",
            bytes(resident),
            bytes(rest)
        )
    } else {
        format!(
            "{sum}, of which a part was never written to: {} resident",
            bytes(resident)
        )
    };
    line(page, "memory", &text)?;
    if let Some(sentences) = page.input.about_mapped() {
        line(page, "mapped", &sentences.join(" "))?;
    }
    if before > 0 {
        let text = format!(
            "{} were resident when tracing began, {} of what is resident now; what allocated them is unknown",
            bytes(before),
            share(before.min(resident), resident),
        );
        line(page, "before", &text)?;
    }
    Ok(())
}

fn ended(page: &mut Page<'_, '_>) -> io::Result<()> {
    let mut ended: Vec<_> = page
        .input
        .profile
        .processes
        .iter()
        .filter(|it| it.ended && it.merged == 0 && it.memory.peak_resident > 0)
        .collect();
    ended.sort_by_key(|it| Reverse(it.memory.peak_resident));
    let largest = ended.first().map_or(0, |it| it.memory.peak_resident);
    // Helpers that a program starts say nothing about it.
    ended.retain(|it| it.memory.peak_resident > largest / MUCH_SMALLER);
    for process in ended.iter().take(MOST_NAMED) {
        let text = format!(
            "at most {} live and {} resident: {}",
            bytes(process.totals.peak_live_bytes),
            bytes(process.memory.peak_resident),
            process_label(process),
        );
        line(page, "peak memory", &text)?;
    }
    Ok(())
}

fn line(page: &mut Page<'_, '_>, name: &str, text: &str) -> io::Result<()> {
    for line in paragraph::lines(&format!("  {name:<13}"), text, page.width) {
        writeln!(page.out, "{line}")?;
    }
    Ok(())
}
