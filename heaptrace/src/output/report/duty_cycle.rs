//! What a report says of processes that were probed in turns: which, for how much of the time, and what of
//! their numbers is uncertain.
//!
//! Stage: output.

use std::io;

use super::page::Page;
use crate::join::{DutyCycle, Totals};
use crate::output::report_input::process_label;
use crate::text::{bytes, count, duration, share};

/// Such processes that are named at most.
const MOST_NAMED: usize = 20;

/// What may have been freed unseen.
pub(super) fn uncertain(page: &mut Page<'_, '_>) -> io::Result<()> {
    let totals = page.input.profile.totals;
    if totals.uncertain_allocations == 0 {
        return Ok(());
    }
    let size = format!("{:>10}", bytes(totals.uncertain_bytes));
    writeln!(
        page.out,
        "  {:<10}{}  in {} allocations, live or freed while their process was not probed",
        "uncertain",
        page.style.bold(&size),
        count(totals.uncertain_allocations),
    )
}

/// Which processes, and what a hit of a probe costs, by which that was decided.
pub(super) fn write(page: &mut Page<'_, '_>) -> io::Result<()> {
    let profile = page.input.profile;
    let quality = &profile.quality;
    let in_turns = profile
        .processes
        .iter()
        .filter_map(|it| Some((it, it.duty_cycle?)));
    let mut in_turns: Vec<_> = in_turns.collect();
    in_turns.sort_by_key(|(_, duty_cycle)| std::cmp::Reverse(duty_cycle.unprobed_ns));
    for (process, duty_cycle) in in_turns.iter().take(MOST_NAMED) {
        let line = format!(
            "  {:<20}{}: {}",
            "probed in turns",
            process_label(process),
            words(duty_cycle, profile.duration_ns, process.merged),
        );
        writeln!(page.out, "{}", page.style.warning(&line))?;
    }
    if in_turns.len() > MOST_NAMED {
        let rest = count((in_turns.len() - MOST_NAMED) as u64);
        writeln!(page.out, "  {:<20}and {rest} more processes", "")?;
    }
    if !in_turns.is_empty() {
        writeln!(
            page.out,
            "  {:<20}what they did meanwhile is not in the numbers, and not extrapolated; \
             --max-overhead off probes all the time",
            ""
        )?;
    }
    if quality.max_overhead > 0 {
        writeln!(
            page.out,
            "  {:<20}{} ns for a hit of a probe; at most {} % of a process's processor time",
            "overhead",
            count(quality.hit_ns),
            f64::from(quality.max_overhead) / 100.0,
        )?;
    }
    Ok(())
}

fn words(duty_cycle: &DutyCycle, run_ns: u64, merged: u64) -> String {
    let overhead = f64::from(duty_cycle.overhead) / 100.0;
    if merged > 0 {
        let unprobed = duration(duty_cycle.unprobed_ns);
        return format!(
            "not probed for {unprobed} in all, up to {overhead:.0} % of their time went into probes"
        );
    }
    let since = run_ns.saturating_sub(duty_cycle.from_ns);
    let probed = since.saturating_sub(duty_cycle.unprobed_ns);
    format!(
        "{} of the time since {}; before, {overhead:.0} % of its processor time went into probes",
        share(probed, since),
        duration(duty_cycle.from_ns),
    )
}

/// The part of a site's blocks that may be live, where there is one.
pub(super) fn perhaps(totals: &Totals) -> String {
    if totals.uncertain_allocations == 0 {
        return String::new();
    }
    format!(
        " (perhaps {} more in {})",
        bytes(totals.uncertain_bytes),
        count(totals.uncertain_allocations),
    )
}
