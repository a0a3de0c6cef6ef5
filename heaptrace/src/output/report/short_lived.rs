//! The processes that ended before they were traced.
//!
//! Stage: output.

use std::io;

use super::page::Page;
use super::paragraph;
use crate::join::ShortLived;
use crate::text::{count, escape};

/// The largest number of names in brief.
const MOST_NAMED: usize = 3;

/// The largest number of names and control groups in detail.
const MOST_IN_DETAIL: usize = 20;

/// Writes how many there were, with the most frequent names.
pub(super) fn in_brief(page: &mut Page<'_, '_>) -> io::Result<()> {
    let ended = &page.input.profile.quality.short_lived;
    if ended.is_empty() {
        return Ok(());
    }
    let names = ended.iter().take(MOST_NAMED);
    let names = names.map(|it| format!("{} {}", count(it.processes), escape(&it.command)));
    let mut names: Vec<String> = names.collect();
    if ended.len() > MOST_NAMED {
        names.push("others".to_owned());
    }
    let text = format!(
        "not traced: {} that ended within about a second ({}); --from-birth traces them, too",
        match all(page) {
            1 => "a process".to_owned(),
            all => format!("{} processes", count(all)),
        },
        names.join(", ")
    );
    for line in paragraph::lines("", &text, page.width) {
        writeln!(page.out, "{line}")?;
    }
    Ok(())
}

/// Writes the most frequent names, each with its control group and the mean time from start to end.
pub(super) fn in_detail(page: &mut Page<'_, '_>) -> io::Result<()> {
    let ended = &page.input.profile.quality.short_lived;
    let mut named = 0;
    for it in ended.iter().take(MOST_IN_DETAIL) {
        named += it.processes;
        for line in paragraph::lines(&format!("  {:<20}", "not traced"), &words(it), page.width) {
            writeln!(page.out, "{line}")?;
        }
    }
    let rest = all(page).saturating_sub(named);
    if rest > 0 {
        let rest = count(rest);
        writeln!(
            page.out,
            "  {:<20}{rest} more short-lived processes",
            "not traced"
        )?;
    }
    Ok(())
}

fn all(page: &Page<'_, '_>) -> u64 {
    let quality = &page.input.profile.quality;
    let of = |name: &str| quality.noted.get(name).copied().unwrap_or(0);
    of("processes_short_lived") + of("short_lived_unnamed")
}

fn words(it: &ShortLived) -> String {
    let place = match it.cgroup.as_str() {
        "" => String::new(),
        path => format!(" in {}", escape(path)),
    };
    format!(
        "{} {}{place}: ended after {} on average",
        count(it.processes),
        escape(&it.command),
        milliseconds(it.lived_ns / it.processes.max(1))
    )
}

fn milliseconds(ns: u64) -> String {
    match ns {
        ..10_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{} ms", count(ns / 1_000_000)),
    }
}
