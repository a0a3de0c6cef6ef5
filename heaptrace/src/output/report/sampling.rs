//! The sampling rates of a run, and the sizes of all calls, which are counted exactly.
//!
//! Stage: output.

use std::io;

use super::page::Page;
use super::table;
use crate::output::rates;
use crate::output::report_input::process_label;
use crate::text::{bytes, count, duration, share, size_class};

/// The largest number of rate changes that are shown.
const MAX_CHANGES: usize = 20;

/// Writes the number of calls for each size class.
pub(super) fn sizes(page: &mut Page<'_, '_>) -> io::Result<()> {
    let sizes = &page.input.profile.sizes;
    let all = sizes.iter().fold(0, |sum: u64, n| sum.saturating_add(*n));
    if all == 0 {
        return Ok(());
    }
    let mut rows = vec![table::row(["SIZE", "CALLS", ""])];
    for (class, calls) in sizes.iter().enumerate().filter(|(_, calls)| **calls > 0) {
        rows.push(table::row([
            size_class(class),
            count(*calls),
            share(*calls, all),
        ]));
    }
    let heading = if page.input.profile.info.is_partial() {
        "Sizes (of all calls)"
    } else {
        "Sizes"
    };
    writeln!(page.out, "{}\n", page.style.bold(heading))?;
    table::write(page.out, &rows, &[], page.style)?;
    writeln!(page.out)
}

/// Writes the periods with their sampling rates.
pub(super) fn rates(page: &mut Page<'_, '_>) -> io::Result<()> {
    let stretches = rates::rates(page.input.profile);
    if stretches.len() <= 1 {
        return Ok(());
    }
    writeln!(page.out, "{}\n", page.style.bold("Sampling rates"))?;
    for stretch in stretches.iter().take(MAX_CHANGES) {
        writeln!(
            page.out,
            "  {:>10} to {:<10} one in {}, {}",
            duration(stretch.from_ns),
            duration(stretch.to_ns),
            bytes(stretch.mean_bytes),
            match stretch.process {
                Some(process) => process_label(process),
                None => "all others".to_owned(),
            },
        )?;
    }
    if stretches.len() > MAX_CHANGES {
        let rest = count((stretches.len() - MAX_CHANGES) as u64);
        writeln!(page.out, "  and {rest} more")?;
    }
    writeln!(page.out)
}
