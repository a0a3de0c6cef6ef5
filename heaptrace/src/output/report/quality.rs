//! How reliable a report is, in detail: losses, files without probes, all counters, and the costs of the run.
//!
//! Stage: output.

use std::collections::BTreeMap;
use std::io;

use super::page::Page;
use super::{duty_cycle, paragraph, short_lived, verdict};
use crate::output::reason_words::{Words, of_lost, of_noted};
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
        ("not traced", &quality.unprobed),
        ("no unwind table", &quality.without_tables),
        ("not readable", &quality.unreadable),
    ] {
        for words in files {
            let line = format!("  {what:<20}{}", escape(words));
            writeln!(page.out, "{}", page.style.warning(&line))?;
        }
    }
    duty_cycle::paused(page)?;
    short_lived::in_detail(page)?;
    duty_cycle::cost(page)?;
    for (name, lost) in quality.lost.iter().filter(|(_, lost)| **lost > 0) {
        for line in counter("lost", name, *lost, of_lost(name), page.width) {
            writeln!(page.out, "{}", page.style.warning(&line))?;
        }
    }
    for (name, noted) in quality.noted.iter().filter(|(_, noted)| **noted > 0) {
        for line in counter("noted", name, *noted, of_noted(name), page.width) {
            writeln!(page.out, "{line}")?;
        }
    }
    for (title, table) in [("lost 0", &quality.lost), ("noted 0", &quality.noted)] {
        let names = zero(table);
        if names.is_empty() {
            continue;
        }
        for line in paragraph::lines(&format!("  {title:<20}"), &names, page.width) {
            writeln!(page.out, "{}", page.style.dim(&line))?;
        }
    }
    let all = quality.stacks();
    let lines = [
        (
            "frees of others",
            if is_partial {
                "unknown: this run records only some blocks".to_owned()
            } else {
                format!(
                    "{} of blocks that were not recorded (usually from before tracing)",
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
            "heaptrace itself",
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

/// The lines of a counter: in words, and with the name that JSON has.
fn counter(
    title: &str,
    name: &str,
    number: u64,
    words: Option<Words>,
    width: usize,
) -> Vec<String> {
    let name = escape(name);
    let text = match words {
        Some(words) => format!("{} ({name})", verdict::sentence(number, &words)),
        None => format!("{} ({name})", count(number)),
    };
    paragraph::lines(&format!("  {title:<20}"), &text, width)
}

/// The names of the counters that are zero.
fn zero(table: &BTreeMap<String, u64>) -> String {
    let names = table.iter().filter(|(_, count)| **count == 0);
    let names: Vec<_> = names.map(|(name, _)| escape(name)).collect();
    names.join(", ")
}
