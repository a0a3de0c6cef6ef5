//! The processes that were paused at times to limit overhead (duty cycle), and the uncertain part of their
//! numbers.
//!
//! Stage: output.

use std::io;

use super::page::Page;
use crate::join::{DutyCycle, Process, Totals};
use crate::output::report_input::process_label;
use crate::text::{bytes, count, duration, share};

/// The largest number of processes that are named.
const MOST_NAMED: usize = 3;

/// The same with details.
const MOST_IN_DETAIL: usize = 20;

/// Writes the allocations that may have been freed during a pause.
pub(super) fn uncertain(page: &mut Page<'_, '_>) -> io::Result<()> {
    let totals = page.input.profile.totals;
    if totals.uncertain_allocations == 0 {
        return Ok(());
    }
    let text = format!(
        "in {} blocks that may have been freed while their process was paused",
        count(totals.uncertain_allocations)
    );
    page.number("perhaps live", &bytes(totals.uncertain_bytes), &text)
}

/// Writes the processes that were paused, the longest pauses first.
pub(super) fn paused(page: &mut Page<'_, '_>) -> io::Result<()> {
    let most = if page.options.details {
        MOST_IN_DETAIL
    } else {
        MOST_NAMED
    };
    let profile = page.input.profile;
    let paused = profile
        .processes
        .iter()
        .filter_map(|it| Some((it, it.duty_cycle?)));
    let mut paused: Vec<_> = paused.collect();
    paused.sort_by_key(|(_, duty_cycle)| std::cmp::Reverse(duty_cycle.unprobed_ns));
    for (process, duty_cycle) in paused.iter().take(most) {
        let words = words(duty_cycle, profile.duration_ns, process.merged);
        page.warn(&format!(
            "paused at times: {}: {words}",
            process_label(process)
        ))?;
    }
    if paused.len() > most {
        let rest = count((paused.len() - most) as u64);
        page.warn(&format!("paused at times: {rest} more processes"))?;
    }
    if !paused.is_empty() {
        let text = "calls during pauses are missing from the numbers, and not extrapolated; \
                    --max-overhead off disables pauses";
        page.warn(text)?;
    }
    Ok(())
}

/// Writes the measured cost of a probe hit, which the pauses are computed from.
pub(super) fn cost(page: &mut Page<'_, '_>) -> io::Result<()> {
    let overhead = page.input.profile.quality.overhead;
    if overhead.hit_ns == 0 {
        return Ok(());
    }
    let mut text = format!("{} ns per probe hit", count(overhead.hit_ns));
    if let Some(percent) = overhead.percent() {
        text.push_str(&format!(
            "; in all {percent:.1} % of the processor time of processes that had hits"
        ));
    }
    if overhead.limit > 0 {
        let limit = f64::from(overhead.limit) / 100.0;
        text.push_str(&format!("; limit: {limit} % of each"));
    }
    writeln!(page.out, "  {:<20}{text}", "overhead")
}

/// The share of time in which a process was probed since its first pause, if it was ever paused.
pub(super) fn covered(process: &Process, run_ns: u64) -> Option<String> {
    let duty_cycle = process.duty_cycle.filter(|_| process.merged == 0)?;
    let since = run_ns.saturating_sub(duty_cycle.from_ns);
    let probed = since.saturating_sub(duty_cycle.unprobed_ns);
    Some(format!("probed {} of the time", share(probed, since)))
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
        "probed {} of the time since {}; before that, probes used {overhead:.0} % of its processor time, in all {:.1} %",
        share(probed, since),
        duration(duty_cycle.from_ns),
        f64::from(duty_cycle.reached) / 100.0,
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
