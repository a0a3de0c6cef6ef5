//! The processes that crashed or were killed, each with what it held and its largest sites.
//!
//! Stage: output.

use std::cmp::Reverse;
use std::io;

use super::amount::Amount;
use super::page::Page;
use super::{paragraph, stack};
use crate::join::{EndCause, Process, ProcessId, Site};
use crate::output::ends;
use crate::output::filter::Filter;
use crate::output::metric::Metric;
use crate::text::count;

/// The largest number of processes that are named, and of sites of each.
const MOST_NAMED: usize = 5;
const MOST_SITES: usize = 3;

/// Writes each process that crashed or was killed.
pub(super) fn write(page: &mut Page<'_, '_>) -> io::Result<()> {
    // What a part of the allocations holds is not what the process held.
    let is_part = page.input.filters.iter().any(Filter::selects_sites);
    if is_part || page.input.since.is_some() {
        return Ok(());
    }
    let sudden = ends::sudden(page.input.profile);
    for (id, process) in sudden.iter().take(MOST_NAMED) {
        one(page, ProcessId(*id), process)?;
    }
    if sudden.len() > MOST_NAMED {
        let rest = count((sudden.len() - MOST_NAMED) as u64);
        writeln!(
            page.out,
            "  {:<13}and {rest} more that crashed or were killed (--format json)",
            ""
        )?;
    }
    Ok(())
}

fn one(page: &mut Page<'_, '_>, id: ProcessId, process: &Process) -> io::Result<()> {
    let profile = page.input.profile;
    let Some(sentence) = ends::sentence(process, &profile.info, &page.intervals) else {
        return Ok(());
    };
    let name = match process.end.map(|end| end.cause) {
        Some(EndCause::OutOfMemory) => "OOM kill",
        Some(cause) if cause.is_crash() => "crash",
        _ => "killed",
    };
    let of_process = |it: &&Site| it.process == id && it.totals.left_bytes > 0;
    let mut sites: Vec<&Site> = profile.sites.iter().filter(of_process).collect();
    sites.sort_by_key(|it| (Reverse(it.totals.left_bytes), it.stack));
    let sentence = match sites.is_empty() {
        true => sentence,
        false => format!("{sentence}; largest sites:"),
    };
    for line in paragraph::lines(&format!("  {name:<13}"), &sentence, page.width) {
        writeln!(page.out, "{}", page.style.warning(&line))?;
    }
    let intervals = page.intervals.of_process(process);
    for site in sites.into_iter().take(MOST_SITES) {
        let amount = Amount::new(&intervals, Metric::LeftBytes, &site.totals).value();
        let room = page.width.saturating_sub(29);
        let title = stack::title(page.input, site.stack, room, page.style);
        writeln!(page.out, "  {:<13}{amount:>10}  {title}", "")?;
    }
    Ok(())
}
