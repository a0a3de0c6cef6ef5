//! The totals of a run, at the top of a report.
//!
//! Stage: output.

use std::io;

use super::duty_cycle;
use super::page::Page;
use crate::text::{bytes, count, plus_minus, share};

/// Writes all totals.
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
        // Below 1 KiB the unit is exact, and an estimate has no exact value.
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
    not_freed_at_end(page)?;
    duty_cycle::uncertain(page)?;
    writeln!(
        page.out,
        "  {:<10}{:>10}  of all allocations ({}) were freed at once",
        "temporary",
        share(totals.temporary_allocations, totals.allocations),
        count(totals.temporary_allocations),
    )?;
    writeln!(page.out)
}

/// Writes the memory that ended processes had not freed, if other processes still run. It counts as live in
/// the totals, but the system got it back. So the peak can be smaller than the live bytes.
fn not_freed_at_end(page: &mut Page<'_, '_>) -> io::Result<()> {
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
        "  {:<10}{size}  in {} allocations not freed by processes that ended; later peaks don't count them",
        "ended",
        count(left)
    )
}
