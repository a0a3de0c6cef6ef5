//! The report for people: totals, the largest sites, and how reliable the numbers are; with details, everything.
//!
//! Stage: output. Escapes every string of a traced process before it is printed.

mod allocators;
mod amount;
mod duty_cycle;
mod ends;
mod exceeded;
mod generations;
mod groups;
mod header;
mod histogram;
mod leaks;
mod map;
mod memory;
mod page;
pub(super) mod paragraph;
mod processes;
mod quality;
mod rounding_classes;
mod sampling;
mod sections;
mod short_lived;
mod site_type;
mod sites;
mod stack;
mod table;
mod totals;
mod types;
mod unreachable;
mod verdict;
mod who;

use std::io::{BufWriter, Write};

use super::error::OutputError;
use super::report_input::ReportInput;
pub use leaks::write_leaks;
pub use map::write_map;
use page::Page;
pub use page::ReportOptions;
pub use types::write_types;
pub use who::write_who;

/// Writes the report.
pub(super) fn write(
    input: &ReportInput<'_>,
    options: &ReportOptions,
    out: &mut dyn Write,
) -> Result<(), OutputError> {
    let page = &mut Page::new(input, options, out);
    header::write(page)?;
    header::not_ended(page)?;
    totals::write(page)?;
    memory::write(page)?;
    ends::write(page)?;
    exceeded::write(page)?;
    writeln!(page.out)?;
    sites::write(page)?;
    if !options.details {
        verdict::write(page)?;
        return Ok(());
    }
    processes::write(page)?;
    sampling::sizes(page)?;
    sampling::rates(page)?;
    allocators::write(page)?;
    quality::write(page)?;
    Ok(())
}

/// Writes the parts that change during a run: totals, the top sites, and losses, if there are any.
pub fn write_summary(
    input: &ReportInput<'_>,
    options: &ReportOptions,
    out: &mut dyn Write,
) -> Result<(), OutputError> {
    let mut out = BufWriter::new(out);
    let page = &mut Page::new(input, options, &mut out);
    header::write(page)?;
    totals::write(page)?;
    memory::write(page)?;
    ends::write(page)?;
    exceeded::write(page)?;
    writeln!(page.out)?;
    verdict::losses(page)?;
    sites::write(page)?;
    out.flush()?;
    Ok(())
}
