//! The heap profile of gperftools, as text: code addresses, and the mapped files that they belong to.
//!
//! Stage: output. Must not know how addresses are placed.

use std::io::Write;

use super::addresses::{Addresses, Memory};
use crate::output::error::OutputError;
use crate::output::report_input::ReportInput;

/// Writes all sites. The name of the profile is that of an exact one, so that no reader scales estimates again.
pub(super) fn write(input: &ReportInput<'_>, out: &mut dyn Write) -> Result<(), OutputError> {
    let line = |memory: Memory| {
        let Memory {
            blocks,
            bytes,
            all_blocks,
            all_bytes,
        } = memory;
        format!("{blocks:6}: {bytes:8} [{all_blocks:6}: {all_bytes:8}] @")
    };
    let addresses = Addresses::of(input);
    let all = addresses.of_all_sites();
    writeln!(out, "heap profile: {} heapprofile", line(all))?;
    for site in &input.profile.sites {
        write!(out, "{}", line(Memory::of(&site.totals)))?;
        addresses.write_stack(site, out)?;
    }
    addresses.write_files(out)
}
