//! The sums of a run, at the top of a report.
//!
//! Stage: output.

use std::io;

use super::duty_cycle;
use super::page::Page;
use crate::text::{bytes, count, plus_minus, share};

/// Writes the sums of all counters.
pub(super) fn write(page: &mut Page<'_, '_>) -> io::Result<()> {
    let totals = page.input.profile.totals;
    let errors = totals.errors;
    let live = (totals.live_allocations, errors.live_allocations);
    let allocated = (totals.allocations, errors.allocations);
    let freed = (totals.frees, errors.frees);
    let mapped = page.input.mapped().map(|mapped| {
        let blocks = (mapped.live_allocations, mapped.errors.live_allocations);
        let error = mapped.errors.live_bytes;
        ("  mapped", mapped.live_bytes, error, Some(blocks))
    });
    let lines = [
        ("live", totals.live_bytes, errors.live_bytes, Some(live)),
        ("peak", totals.peak_live_bytes, errors.peak_live_bytes, None),
        (
            "allocated",
            totals.allocated_bytes,
            errors.allocated_bytes,
            Some(allocated),
        ),
        ("freed", totals.freed_bytes, errors.freed_bytes, Some(freed)),
    ];
    let (first, rest) = lines.split_at(1);
    for (name, size, error, blocks) in first
        .iter()
        .copied()
        .chain(mapped)
        .chain(rest.iter().copied())
    {
        // The unit is enough below 1 KiB, where it is exact, and for what is an estimate.
        let exact = if error > 0 {
            plus_minus(error, bytes)
        } else if size < 1024 {
            String::new()
        } else {
            format!("  {} bytes", count(size))
        };
        let blocks = match blocks {
            Some((1, 0)) => "  in 1 allocation".to_owned(),
            Some((n, error)) => {
                let error = plus_minus(error, count);
                format!("  in {}{error} allocations", count(n))
            }
            None => String::new(),
        };
        let size = page.style.bold(&format!("{:>10}", bytes(size)));
        writeln!(page.out, "  {name:<10}{size}{exact}{blocks}")?;
    }
    of_ended(page)?;
    duty_cycle::uncertain(page)?;
    writeln!(
        page.out,
        "  {:<10}{:>10}  of all allocations, {}, were freed at once",
        "temporary",
        share(totals.temporary_allocations, totals.allocations),
        count(totals.temporary_allocations),
    )?;
    writeln!(page.out)
}

/// What processes had not freed when they ended, where others go on: it is live by the record, and was given back
/// to the machine, so the peak can be less.
fn of_ended(page: &mut Page<'_, '_>) -> io::Result<()> {
    let processes = &page.input.profile.processes;
    if processes.iter().all(|it| it.ended) {
        return Ok(());
    }
    let ended = || processes.iter().filter(|it| it.ended).map(|it| it.totals);
    let bytes_left: u64 = ended().map(|it| it.live_bytes).sum();
    if bytes_left == 0 {
        return Ok(());
    }
    let left: u64 = ended().map(|it| it.live_allocations).sum();
    let size = page.style.bold(&format!("{:>10}", bytes(bytes_left)));
    writeln!(
        page.out,
        "  {:<10}{size}  in {} allocations that processes left when they ended, no part of the peak after that",
        "of ended",
        count(left)
    )
}
