//! How far a report can be trusted, in brief: what is wrong, if anything, and one line.
//!
//! Stage: output.

use std::collections::BTreeSet;
use std::io;

use super::page::Page;
use super::{duty_cycle, paragraph, short_lived};
use crate::output::reason_words::{Words, of_lost, of_noted};
use crate::text::{count, duration, escape, share};

/// The largest number of files of one kind that are named.
const MOST_FILES: usize = 3;

/// Fewer samples than this say little.
const FEW_SAMPLES: u64 = 100;

/// A tenth of the stacks or more that are incomplete are worth a line.
const MANY_INCOMPLETE: u64 = 10;

/// Writes what is wrong, and the line.
pub(super) fn write(page: &mut Page<'_, '_>) -> io::Result<()> {
    problems(page)?;
    duty_cycle::paused(page)?;
    short_lived::in_brief(page)?;
    let quality = &page.input.profile.quality;
    let is_sampled = page.input.profile.info.mode.is_sampled();
    let mut parts = vec![if quality.lost.values().all(|lost| *lost == 0) {
        "nothing lost".to_owned()
    } else {
        "SOME LOST (see above): numbers are incomplete".to_owned()
    }];
    if is_sampled {
        parts.push(format!("{} samples", count(quality.samples)));
    }
    if quality.stacks() > 0 {
        parts.push(format!(
            "{} whole stacks",
            share(quality.stacks_complete, quality.stacks())
        ));
    }
    if quality.failed_allocations > 0 {
        parts.push(format!(
            "{} failed allocations",
            count(quality.failed_allocations)
        ));
    }
    if let Some(percent) = quality.overhead.percent() {
        parts.push(format!("overhead {percent:.1} %"));
    }
    parts.push(format!(
        "heaptrace used {} of processor time",
        duration(quality.agent_cpu_ns)
    ));
    let is_whole = page.input.filters.is_empty()
        && page.input.since.is_none()
        && page.input.profile.range.is_none();
    let whole = if is_whole { "" } else { "of the whole run: " };
    for line in paragraph::lines("", &format!("{whole}{}", parts.join(", ")), page.width) {
        writeln!(page.out, "{line}")?;
    }
    let more = match page.input.profile.processes.len() {
        0 | 1 => "more: --details, --by function, heaptrace flamegraph",
        _ => "more: --details, --by function, --by process, heaptrace flamegraph",
    };
    writeln!(page.out, "{}", page.style.dim(more))
}

/// Writes everything that makes numbers wrong or incomplete, each with what to do about it.
pub(super) fn problems(page: &mut Page<'_, '_>) -> io::Result<()> {
    losses(page)?;
    let quality = &page.input.profile.quality;
    for (noted, number) in quality.noted.iter().filter(|(_, number)| **number > 0) {
        if let Some(words) = of_noted(noted).filter(|words| words.matters) {
            page.warn(&sentence(*number, &words))?;
        }
    }
    for (what, list) in [
        (
            "not traced, so its allocations are missing",
            &quality.unprobed,
        ),
        (
            "stacks may end early, as there was no room for its unwind table (--max-table-memory)",
            &quality.without_tables,
        ),
        ("could not be read", &quality.unreadable),
    ] {
        files(page, what, list)?;
    }
    let (broken, all) = (quality.stacks_broken, quality.stacks());
    if broken.saturating_mul(MANY_INCOMPLETE) > all {
        let reasons = quality
            .noted
            .iter()
            .filter(|(name, _)| name.starts_with("stack_broken_"));
        let most = reasons.max_by_key(|(_, number)| **number);
        let why = most.and_then(|(name, _)| of_noted(name));
        let why = why.map_or_else(String::new, |words| {
            format!("; most {}", words.what.trim_start_matches("stacks "))
        });
        page.warn(&format!(
            "{} of the stacks are incomplete{why}",
            share(broken, all)
        ))?;
    }
    if page.input.profile.info.mode.is_sampled() && quality.samples < FEW_SAMPLES {
        let few = match quality.samples {
            0 => "no allocation was sampled".to_owned(),
            1 => "only one allocation was sampled".to_owned(),
            n => format!(
                "only {} allocations were sampled: numbers are coarse",
                count(n)
            ),
        };
        let text = format!("{few}; record for longer, with a smaller --sample, or with --exact");
        page.warn(&text)?;
    }
    Ok(())
}

/// Writes all losses, each on a line.
pub(super) fn losses(page: &mut Page<'_, '_>) -> io::Result<()> {
    let lost = &page.input.profile.quality.lost;
    for (name, number) in lost.iter().filter(|(_, number)| **number > 0) {
        let text = match of_lost(name) {
            Some(words) => sentence(*number, &words),
            None => format!("{} lost ({})", count(*number), escape(name)),
        };
        page.warn(&format!("lost: {text}"))?;
    }
    Ok(())
}

/// A number, what it counts, and what to do about it.
pub(super) fn sentence(number: u64, words: &Words) -> String {
    let advice = if words.advice.is_empty() { "" } else { "; " };
    format!("{} {}{advice}{}", count(number), words.what, words.advice)
}

fn files(page: &mut Page<'_, '_>, what: &str, list: &BTreeSet<String>) -> io::Result<()> {
    for file in list.iter().take(MOST_FILES) {
        page.warn(&format!("{}: {what}", escape(file)))?;
    }
    if list.len() > MOST_FILES {
        let rest = count((list.len() - MOST_FILES) as u64);
        page.warn(&format!("and {rest} more such files (--details)"))?;
    }
    Ok(())
}
