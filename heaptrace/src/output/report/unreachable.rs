//! What nothing in a process points to, for people.
//!
//! Stage: output. A part of the page of leaks. Says what the search can't know.

use std::collections::BTreeMap;
use std::io;

use super::amount::Amount;
use super::page::Page;
use super::sections::{heading, more, place, says, sites};
use super::stack;
use crate::join::{Kind, Reachability};
use crate::output::leaks::{Unreachable, UnreachableSite};
use crate::output::metric::Metric;
use crate::output::report_input::process_label;
use crate::output::sum;
use crate::text::{bytes, count, counted, duration, escape, lifetime, share};

/// Most names of processes that were not searched for one reason.
const NAMES: usize = 5;

/// Writes what was found; nothing if nothing was searched.
pub(super) fn write(page: &mut Page<'_, '_>, found: &Unreachable) -> io::Result<()> {
    let (refused, searched): (Vec<_>, Vec<_>) =
        found.searches.iter().partition(|it| !it.refused.is_empty());
    if !searched.is_empty() {
        unreachable(page, found, &searched)?;
        all_facts(page, &searched)?;
        says(page, &limits(page, &searched))?;
    }
    if refused.is_empty() {
        return Ok(());
    }
    heading(
        page,
        "Processes whose unreachable blocks are not known, because their memory was not searched",
    )?;
    let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for search in refused {
        let name = name(page, search);
        reasons.entry(&search.refused).or_default().push(name);
    }
    for (reason, names) in reasons {
        let shown = names.len().min(NAMES);
        let mut words = names.get(..shown).unwrap_or_default().join(", ");
        if names.len() > shown {
            words.push_str(&format!(
                " and {} more",
                count((names.len() - shown) as u64)
            ));
        }
        says(page, &format!("{words}: {}.", escape(reason)))?;
    }
    Ok(())
}

fn unreachable(
    page: &mut Page<'_, '_>,
    found: &Unreachable,
    searched: &[&Reachability],
) -> io::Result<()> {
    let last = searched.iter().map(|it| it.at_ns).max().unwrap_or(0);
    let at = format!("{} into the run", duration(last));
    if found.sites.is_empty() {
        let what = match found.suppressed {
            0 => "Nothing recorded is unreachable".to_owned(),
            some => format!(
                "Nothing recorded is unreachable but what is suppressed ({})",
                sites(some)
            ),
        };
        return heading(page, &format!("{what}, {at}"));
    }
    let all = sum::of(found.sites.iter().map(|site| &site.all));
    let about = match page.input.profile.info.mode.is_sampled() {
        true => "about ",
        false => "",
    };
    let words = format!(
        "Unreachable, {at}: {} in {about}{} blocks, from {}; nothing {} to them",
        Amount::new(&page.intervals, Metric::LiveBytes, &all).value(),
        count(all.live_allocations),
        sites(found.sites.len()),
        match searched.iter().all(|it| it.is_whole) {
            true => "pointed",
            false => "seemed to point",
        }
    );
    heading(page, &words)?;
    for (rank, it) in found.sites.iter().take(page.options.top).enumerate() {
        site(page, rank + 1, it)?;
    }
    more(page, found.sites.len())
}

fn site(page: &mut Page<'_, '_>, rank: usize, site: &UnreachableSite) -> io::Result<()> {
    let amount = Amount::new(&page.intervals, Metric::LiveBytes, &site.all);
    stack::write_title(page, rank, &amount.value(), site.stack)?;
    let mut facts: Vec<String> = amount.range().into_iter().collect();
    let (direct, indirect) = (site.direct.live_allocations, site.indirect.live_allocations);
    facts.push(match (direct, indirect) {
        (direct, 0) => format!("{}, to which nothing points", blocks(direct)),
        (0, indirect) => format!(
            "{}, to which only unreachable blocks point",
            blocks(indirect)
        ),
        (direct, indirect) => format!(
            "{}: nothing points to {}, only unreachable blocks to {} ({})",
            blocks(direct.saturating_add(indirect)),
            count(direct),
            count(indirect),
            bytes(site.indirect.live_bytes)
        ),
    });
    place(
        page,
        &facts.join("; "),
        site.process,
        Kind::Heap,
        site.stack,
    )
}

fn times(number: u32) -> String {
    match number {
        0 | 1 => "once".to_owned(),
        many => format!("{} times", count(many.into())),
    }
}

fn blocks(number: u64) -> String {
    counted(number, "block", "blocks")
}

/// How the searches were made; those of several processes that have nothing particular are summed up.
fn all_facts(page: &mut Page<'_, '_>, searched: &[&Reachability]) -> io::Result<()> {
    let is_usual = |it: &Reachability| {
        it.is_whole && it.young_blocks == 0 && it.freed_blocks == 0 && it.unread_bytes == 0
    };
    let shown = searched
        .iter()
        .filter(|it| page.options.details || !is_usual(it));
    let shown: Vec<_> = match searched {
        [_] => searched.iter().collect(),
        _ => shown.collect(),
    };
    for search in &shown {
        facts(page, search, searched.len() > 1)?;
    }
    let stops = || searched.iter().map(|it| it.stopped_ns);
    let (Some(least), Some(most)) = (stops().min(), stops().max()) else {
        return Ok(());
    };
    if shown.len() == searched.len() {
        return Ok(());
    }
    let words = format!(
        "{} processes were stopped, each for {} to {}, to read their memory; --details has each.",
        count(searched.len() as u64),
        lifetime(least),
        lifetime(most)
    );
    says(page, &words)
}

/// How a search was made.
fn facts(page: &mut Page<'_, '_>, search: &Reachability, several: bool) -> io::Result<()> {
    let threads = counted(search.threads.into(), "thread", "threads");
    let of = match several {
        true => format!("{}: ", name(page, search)),
        false => String::new(),
    };
    let mut words = format!(
        "{of}{} with {} were looked for in {} of memory. The process ({threads}) was stopped for {}",
        blocks(search.judged_blocks),
        bytes(search.judged_bytes),
        bytes(search.memory_bytes),
        lifetime(search.stopped_ns),
    );
    match search.is_whole {
        true => words.push_str(", and all of it was read then."),
        false => words.push_str(&format!(
            ", in which {} of it was read, what had changed lately first. The rest was read shortly before, and all of it {} more \
             afterwards, while the process ran, until that showed no more pointers: one that was moved, or only in a register, each time can be \
             missed. record --max-stop TIME allows a longer stop, in which all of it is read.",
            share(search.stopped_bytes, search.memory_bytes),
            times(search.later_readings)
        )),
    }
    if search.young_blocks > 0 {
        words.push_str(&format!(
            " {} were too young to be judged.",
            blocks(search.young_blocks)
        ));
    }
    if search.freed_blocks > 0 {
        words.push_str(&format!(
            " {} to which nothing seemed to point were freed right afterwards, and don't count: the program hides pointers.",
            blocks(search.freed_blocks)
        ));
    }
    if search.unread_bytes > 0 {
        words.push_str(&format!(
            " {} were not read, because they are swapped or belong to a device: pointers in them are not seen.",
            bytes(search.unread_bytes)
        ));
    }
    says(page, &words)
}

/// What can't be known.
fn limits(page: &Page<'_, '_>, searched: &[&Reachability]) -> String {
    let mut words = "Any word that holds an address in a block counts as a pointer to it, also a stale one on a stack: there can be more leaks. \
         A pointer that is hidden (compressed, encrypted, in a file or a device) is not seen: its block is no leak."
        .to_owned();
    if page.input.profile.info.is_partial() {
        words.push_str(
            " In a sample, or with a limit of sizes, blocks that are not recorded count as reachable, and so does all that they point to: \
             of a leaked list, only a block to which no unrecorded one points is found. So these are the least that leaks.",
        );
    } else if searched.iter().any(|it| !it.has_all_blocks) {
        words.push_str(
            " Blocks from before tracing began, or that were not recorded, are not judged, and count as reachable with all that they point \
             to, freed ones, too. So these are the least that leaks.",
        );
    }
    words
}

fn name(page: &Page<'_, '_>, search: &Reachability) -> String {
    let processes = &page.input.profile.processes;
    let process = processes.get(search.process.0 as usize);
    process.map_or_else(String::new, process_label)
}
