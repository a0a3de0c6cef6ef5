//! The first lines of a report: target, mode, duration, warnings and filters.
//!
//! Stage: output.

use std::io;

use super::page::Page;
use super::paragraph;
use crate::profile::RunEnd;
use crate::text::{duration, escape};

/// Writes the headline, the warnings and the filters.
pub(super) fn write(page: &mut Page<'_, '_>) -> io::Result<()> {
    let profile = page.input.profile;
    let mode = profile.chosen();
    let kernel = escape(&profile.info.kernel);
    let target = format!("heaptrace: {}", escape(&profile.info.target));
    writeln!(
        page.out,
        "{} ({mode}, {}{}{kernel})",
        page.style.bold(&target),
        duration(profile.duration_ns),
        if kernel.is_empty() { "" } else { ", Linux " },
    )?;
    for warning in page.input.warnings {
        let warning = format!("warning: {}", escape(warning));
        writeln!(page.out, "{}", page.style.warning(&warning))?;
    }
    if let Some(only) = page.input.only() {
        writeln!(page.out, "{}", page.style.bold(&only))?;
    }
    writeln!(page.out)
}

/// Writes that the run did not end, unless a warning says so; of a part of a run, what its numbers mean.
pub(super) fn not_ended(page: &mut Page<'_, '_>) -> io::Result<()> {
    if let Some(range) = page.input.profile.range {
        let peak = match range.peak_is_least {
            true => {
                "The peak of the run was earlier: the peak is the most at a snapshot of this time, and may have been higher between."
            }
            false => "The peak is that of this time.",
        };
        let words = format!(
            "Live is what was live at the end of this time, also what is older; allocated is what was allocated in it. {peak}"
        );
        for line in paragraph::lines("", &words, page.width) {
            writeln!(page.out, "{}", page.style.dim(&line))?;
        }
        return writeln!(page.out);
    }
    let note = match page.input.profile.end {
        RunEnd::CutOff => "not ended: the numbers are those of the last update",
        RunEnd::WentOn => "a snapshot: the run continued",
        RunEnd::Orderly => return Ok(()),
    };
    if page.input.warnings.is_empty() {
        writeln!(page.out, "{}\n", page.style.dim(note))?;
    }
    Ok(())
}
