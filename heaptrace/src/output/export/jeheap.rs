//! The heap profile of jemalloc, version 2, as text: code addresses, and the mapped files that they belong to.
//!
//! Stage: output. Must not know how addresses are placed.

use std::io::Write;

use super::addresses::{Addresses, Memory};
use crate::output::error::OutputError;
use crate::output::report_input::ReportInput;

/// Writes all sites. The mean of bytes between samples in the head is 0, so that no reader scales estimates again.
pub(super) fn write(input: &ReportInput<'_>, out: &mut dyn Write) -> Result<(), OutputError> {
    let line = |memory: Memory| {
        let Memory {
            blocks,
            bytes,
            all_blocks,
            all_bytes,
        } = memory;
        format!("  t*: {blocks}: {bytes} [{all_blocks}: {all_bytes}]")
    };
    let addresses = Addresses::of(input);
    writeln!(out, "heap_v2/0\n{}", line(addresses.of_all_sites()))?;
    for site in &input.profile.sites {
        write!(out, "@")?;
        addresses.write_stack(site, out)?;
        writeln!(out, "{}", line(Memory::of(&site.totals)))?;
    }
    addresses.write_files(out)
}
