//! How reliable a report is: losses, files without probes, and the costs of the run.
//!
//! Stage: output.

use std::collections::BTreeMap;
use std::io;

use super::duty_cycle;
use super::page::Page;
use crate::text::{bytes, count, duration, escape, share};

/// Writes losses, files that were not probed, stack quality and costs.
pub(super) fn write(page: &mut Page<'_, '_>) -> io::Result<()> {
    let quality = &page.input.profile.quality;
    let info = &page.input.profile.info;
    let (is_partial, is_sampled) = (info.is_partial(), info.mode.is_sampled());
    let nothing_lost = quality.lost.values().all(|count| *count == 0);
    let heading = match page.input.filters {
        [] => "Quality",
        _ => "Quality (of the whole run)",
    };
    writeln!(page.out, "{}\n", page.style.bold(heading))?;
    writeln!(
        page.out,
        "  {:<20}{} seen, {}",
        if is_sampled { "samples" } else { "allocations" },
        count(quality.samples),
        if nothing_lost {
            "nothing lost"
        } else {
            "SOME LOST: the numbers above are incomplete"
        }
    )?;
    for (what, files) in [
        ("not probed", &quality.unprobed),
        ("no unwind table", &quality.without_tables),
        ("not readable", &quality.unreadable),
    ] {
        for words in files {
            let line = format!("  {what:<20}{}", escape(words));
            writeln!(page.out, "{}", page.style.warning(&line))?;
        }
    }
    duty_cycle::write(page)?;
    for (reason, lost) in quality.lost.iter().filter(|(_, lost)| **lost > 0) {
        let line = format!("  {:<20}{} ({})", "lost", count(*lost), escape(reason));
        writeln!(page.out, "{}", page.style.warning(&line))?;
    }
    let zero = |table: &BTreeMap<String, u64>| {
        let names = table.iter().filter(|(_, count)| **count == 0);
        let names: Vec<_> = names.map(|(name, _)| escape(name)).collect();
        names.join(", ")
    };
    for (kind, noted) in quality.noted.iter().filter(|(_, noted)| **noted > 0) {
        writeln!(
            page.out,
            "  {:<20}{} ({})",
            "noted",
            count(*noted),
            escape(kind)
        )?;
    }
    for (title, names) in [
        ("lost 0", zero(&quality.lost)),
        ("noted 0", zero(&quality.noted)),
    ] {
        if !names.is_empty() {
            writeln!(
                page.out,
                "  {}",
                page.style.dim(&format!("{title:<20}{names}"))
            )?;
        }
    }
    let all = quality
        .stacks_complete
        .saturating_add(quality.stacks_truncated)
        .saturating_add(quality.stacks_broken);
    let lines = [
        (
            "untracked frees",
            if is_partial {
                "unknown: this run records only some blocks".to_owned()
            } else {
                format!(
                    "{} (usually of blocks allocated before tracing)",
                    count(quality.untracked_frees)
                )
            },
        ),
        (
            "failed allocations",
            format!(
                "{}{}",
                if is_partial { "at least " } else { "" },
                count(quality.failed_allocations)
            ),
        ),
        (
            "stacks",
            format!(
                "{} complete ({}), {} deeper than the limit, {} incomplete",
                count(quality.stacks_complete),
                share(quality.stacks_complete, all),
                count(quality.stacks_truncated),
                count(quality.stacks_broken)
            ),
        ),
        (
            "addresses",
            format!("{} without a name", count(page.input.unsymbolized())),
        ),
        (
            "kernel memory",
            format!("{} in maps", bytes(quality.kernel_map_bytes)),
        ),
        (
            "agent",
            format!(
                "{} of processor time, at most {} of memory",
                duration(quality.agent_cpu_ns),
                bytes(quality.agent_peak_bytes)
            ),
        ),
    ];
    for (name, value) in lines {
        writeln!(page.out, "  {name:<20}{value}")?;
    }
    Ok(())
}

/// Writes all losses in one line, if there are any.
pub(super) fn lost_line(page: &mut Page<'_, '_>) -> io::Result<()> {
    let quality = &page.input.profile.quality;
    let lost: Vec<String> = quality
        .lost
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(reason, lost)| format!("{} {}", count(*lost), escape(reason)))
        .collect();
    if lost.is_empty() {
        return Ok(());
    }
    let line = format!("lost: {}", lost.join(", "));
    writeln!(page.out, "{}\n", page.style.warning(&line))
}
