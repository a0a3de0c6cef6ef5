//! The processes that were paused at times to limit overhead (duty cycle), and the uncertain part of their
//! numbers.
//!
//! Stage: output.

use std::io;

use super::page::Page;
use crate::join::{DutyCycle, Totals};
use crate::output::report_input::process_label;
use crate::text::{bytes, count, duration, share};

/// The largest number of processes that are named.
const MOST_NAMED: usize = 20;

/// Writes the allocations that may have been freed during a pause.
pub(super) fn uncertain(page: &mut Page<'_, '_>) -> io::Result<()> {
    let totals = page.input.profile.totals;
    if totals.uncertain_allocations == 0 {
        return Ok(());
    }
    let size = format!("{:>10}", bytes(totals.uncertain_bytes));
    writeln!(
        page.out,
        "  {:<10}{}  in {} allocations that may have been freed while their process was paused",
        "uncertain",
        page.style.bold(&size),
        count(totals.uncertain_allocations),
    )
}

/// Writes the paused processes, and the measured cost of a probe hit, which the pauses are computed from.
pub(super) fn write(page: &mut Page<'_, '_>) -> io::Result<()> {
    let profile = page.input.profile;
    let quality = &profile.quality;
    let paused = profile
        .processes
        .iter()
        .filter_map(|it| Some((it, it.duty_cycle?)));
    let mut paused: Vec<_> = paused.collect();
    paused.sort_by_key(|(_, duty_cycle)| std::cmp::Reverse(duty_cycle.unprobed_ns));
    for (process, duty_cycle) in paused.iter().take(MOST_NAMED) {
        let line = format!(
            "  {:<20}{}: {}",
            "paused at times",
            process_label(process),
            words(duty_cycle, profile.duration_ns, process.merged),
        );
        writeln!(page.out, "{}", page.style.warning(&line))?;
    }
    if paused.len() > MOST_NAMED {
        let rest = count((paused.len() - MOST_NAMED) as u64);
        writeln!(page.out, "  {:<20}and {rest} more processes", "")?;
    }
    if !paused.is_empty() {
        writeln!(
            page.out,
            "  {:<20}calls during pauses are missing from the numbers, and not extrapolated; \
             --max-overhead off disables pauses",
            ""
        )?;
    }
    if quality.max_overhead > 0 {
        writeln!(
            page.out,
            "  {:<20}{} ns per probe hit; limit: {} % of a process's processor time",
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
            "paused for {unprobed} in total, as probes used up to {overhead:.0} % of their processor time"
        );
    }
    let since = run_ns.saturating_sub(duty_cycle.from_ns);
    let probed = since.saturating_sub(duty_cycle.unprobed_ns);
    format!(
        "probed {} of the time since {}; before that, probes used {overhead:.0} % of its processor time",
        share(probed, since),
        duration(duty_cycle.from_ns),
    )
}

/// The blocks of a site that may still be live, if there are any.
pub(super) fn uncertain_suffix(totals: &Totals) -> String {
    if totals.uncertain_allocations == 0 {
        return String::new();
    }
    format!(
        " (perhaps {} more in {})",
        bytes(totals.uncertain_bytes),
        count(totals.uncertain_allocations),
    )
}
