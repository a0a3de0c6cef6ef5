//! The memory map for people: what resident memory is made of, and which sites keep it.
//!
//! Stage: output. Shows what was found, and says what can't be seen.

use std::io::{self, Write};

use super::page::{Page, ReportOptions};
use super::sections::{heading, says, sites as number_of_sites};
use super::table::{self, row};
use super::{header, site_type, stack};
use crate::join::Kind;
use crate::output::error::OutputError;
use crate::output::map::{NEARLY_EMPTY, ProcessMap, SiteMemory, What, not_read};
use crate::output::report_input::ReportInput;
use crate::text::{bytes, count, counted, duration, plus_minus, share};

/// Writes the maps.
pub fn write_map(
    input: &ReportInput<'_>,
    maps: &[ProcessMap<'_>],
    options: &ReportOptions,
    out: &mut dyn Write,
) -> Result<(), OutputError> {
    let page = &mut Page::new(input, options, out);
    header::write(page)?;
    for map in maps {
        of_process(page, map)?;
    }
    let not_read = not_read(input.profile);
    if not_read > 0 {
        let others = match not_read {
            1 => "One more process has".to_owned(),
            many => format!("{} more processes have", count(many)),
        };
        page.warn(&format!(
            "{others} recorded blocks, and no map: the memory of so many processes is not read, or it could not be read. Trace fewer \
             processes to see them."
        ))?;
    }
    Ok(())
}

fn of_process(page: &mut Page<'_, '_>, map: &ProcessMap<'_>) -> io::Result<()> {
    let words = format!(
        "Memory of {}, {} into the run",
        map.label(),
        duration(map.map.at_ns)
    );
    heading(page, &words)?;
    rows(page, map)?;
    remarks(page, map)?;
    live(page, map)?;
    pages(page, map)?;
    pinning(page, map)?;
    largest(page, map)
}

fn rows(page: &mut Page<'_, '_>, map: &ProcessMap<'_>) -> io::Result<()> {
    let sum = map.account.sum();
    let mut table = vec![row(["resident", "share", "what"])];
    for it in &map.account.rows {
        let error = match it.error {
            0 => String::new(),
            error => plus_minus(error, bytes),
        };
        table.push(row([
            format!("{}{error}", bytes(it.bytes)),
            share(it.bytes, sum),
            it.what.key().to_owned(),
        ]));
    }
    let mut text = Vec::new();
    table::write(&mut text, &table, &[2], page.style)?;
    let text = String::from_utf8_lossy(&text);
    let mut lines = text.lines();
    if let Some(line) = lines.next() {
        writeln!(page.out, "{line}")?;
    }
    for (line, it) in lines.zip(&map.account.rows) {
        // The words are wider than a cell, and need their own lines.
        let line = line.trim_end().trim_end_matches(it.what.key());
        for line in super::paragraph::lines(line, &words(it.what, map), page.width) {
            writeln!(page.out, "{line}")?;
        }
    }
    let counted = map.account.resident;
    let difference = match counted {
        0 => "the kernel's own number (VmRSS) is not known".to_owned(),
        counted if counted == sum => {
            format!("the kernel counts the same (VmRSS {})", bytes(counted))
        }
        counted => {
            let more = if sum > counted { "less" } else { "more" };
            let apart = sum.abs_diff(counted);
            format!(
                "the kernel counts {}, {} {more} ({})",
                bytes(counted),
                bytes(apart),
                share(apart, counted)
            )
        }
    };
    let line = format!("sum {}; {difference}", bytes(sum));
    for line in super::paragraph::lines("  ", &line, page.width) {
        writeln!(page.out, "{}", page.style.bold(&line))?;
    }
    writeln!(page.out)
}

/// What a row is, for people.
fn words(what: What, map: &ProcessMap<'_>) -> String {
    let or_older = match map.is_older() {
        true => ", or not recorded",
        false => "",
    };
    match what {
        What::Live => {
            let blocks = map.sites_of(Kind::Heap).map(|it| it.blocks).sum::<u64>();
            let noun = match map.is_partial() {
                true => "recorded blocks stand for",
                false => "live blocks asked for",
            };
            format!("live: what {} {noun}", count(blocks))
        }
        What::Rounding => match map.allocator() {
            Some(name) => format!("rounding: what {name} adds to these sizes"),
            None => "rounding".to_owned(),
        },
        What::Headers => format!("headers: {} B before each block", map.header()),
        What::Fragmentation => {
            format!("fragmentation: free{or_older}, on pages that have live blocks, too")
        }
        What::FreePages => {
            let older = match map.is_older() {
                true => "known live block on them",
                false => "live block on them",
            };
            format!("free pages of the allocator: no {older}")
        }
        What::HeapRest => format!(
            "the rest of the allocator's memory: free{or_older}, headers, or blocks that were not recorded"
        ),
        What::Heap => "the allocator's memory: live and free blocks".to_owned(),
        What::Mapped => "mapped by the program itself (mmap)".to_owned(),
        What::Stacks => "stacks of threads".to_owned(),
        What::Files => "files: programs and libraries with their variables, and others".to_owned(),
        What::Shared => "shared memory".to_owned(),
        What::Other => format!(
            "other memory without a file: not recorded{}",
            match map.is_older() {
                true => ", for instance from before tracing",
                false => "",
            }
        ),
        What::Kernel => "pages of the kernel".to_owned(),
    }
}

/// What the numbers can't tell.
fn remarks(page: &mut Page<'_, '_>, map: &ProcessMap<'_>) -> io::Result<()> {
    let residency = &map.map.residency;
    if let Some(why) = &residency.unknown_pages {
        let words = format!(
            "Which pages are resident is not known, so there is no more than this: {}",
            crate::text::escape(why)
        );
        page.warn(&words)?;
    }
    if residency.left_out > 0 {
        page.warn(&format!(
            "{} mappings found no room in the list: the sum lacks them",
            count(residency.left_out)
        ))?;
    }
    let mapped = map.map.mapped_left_out;
    if mapped > 0 {
        page.warn(&format!(
            "{} parts of memory that the program mapped itself found no room in the list: they count as other memory",
            count(mapped)
        ))?;
    }
    if map.is_partial() {
        let words = format!(
            "Only a part of all blocks was recorded ({}): how full a page is can't be said. For that, record with --exact, and without \
             --min-size and --max-size.",
            page.input.profile.chosen()
        );
        says(page, &words)?;
    }
    if map.allocator().is_none() && map.account.of(What::Live) > 0 {
        says(
            page,
            "Rounding and headers of this allocator are not known: they count as fragmentation.",
        )?;
    }
    if map.is_older() {
        says(
            page,
            "It may have blocks that are not known, and count as free here: from before it was traced, of a parent that it was forked \
             from, or from times in which it was paused.",
        )?;
    }
    Ok(())
}

/// Where the live bytes are.
fn live(page: &mut Page<'_, '_>, map: &ProcessMap<'_>) -> io::Result<()> {
    let words = format!("Live memory: {}.", states(&map.account.live, true));
    says(page, &words)
}

/// Bytes by the states of their pages: `1.0 MiB resident, 12 KiB never touched`.
fn states(states: &crate::output::map::States, all: bool) -> String {
    let resident = states.resident.value();
    let mut words = Vec::new();
    let mut add = |number: u64, what: &str, wanted: bool| {
        if number > 0 || wanted {
            words.push(format!("{} {what}", bytes(number)));
        }
    };
    let unknown = states.unknown.value();
    add(resident, "resident", all || unknown == 0);
    add(states.huge.value(), "of that in huge pages", false);
    add(states.swapped.value(), "swapped", all && unknown == 0);
    add(
        states.untouched.value(),
        "never touched",
        all && unknown == 0,
    );
    add(unknown, "in memory whose pages were not looked at", false);
    words.join(", ")
}

fn pages(page: &mut Page<'_, '_>, map: &ProcessMap<'_>) -> io::Result<()> {
    if map.account.pages == [0; 6] {
        return Ok(());
    }
    let names = [
        "empty",
        "to 25 %",
        "to 50 %",
        "to 75 %",
        "below 100 %",
        "full",
    ];
    let classes = names.iter().zip(map.account.pages);
    let classes: Vec<_> = classes
        .map(|(name, pages)| format!("{name} {}", count(pages)))
        .collect();
    let words = format!(
        "Resident pages of the allocator by how much of them is in use: {}.",
        classes.join(", ")
    );
    says(page, &words)
}

fn pinning(page: &mut Page<'_, '_>, map: &ProcessMap<'_>) -> io::Result<()> {
    if map.is_partial() || map.map.residency.unknown_pages.is_some() {
        return Ok(());
    }
    let pinning: Vec<_> = map.sites().filter(|it| it.pinned > 0).collect();
    let sum = pinning
        .iter()
        .fold(0_u64, |sum, it| sum.saturating_add(it.pinned));
    if pinning.is_empty() {
        let is_hidden = map.account.sites.iter().any(|it| it.pinned > 0);
        let words = match is_hidden {
            true => "None of these sites keeps nearly empty pages resident",
            false => "No site keeps nearly empty pages resident",
        };
        heading(page, words)?;
        return Ok(());
    }
    heading(
        page,
        &format!(
            "Keep nearly empty pages resident: {}, {} free bytes",
            number_of_sites(pinning.len()),
            bytes(sum)
        ),
    )?;
    for (rank, site) in pinning.iter().take(page.options.top).enumerate() {
        stack::write_title(page, rank + 1, &bytes(site.pinned), site.stack)?;
        let pages = counted(site.pinned_pages, "page", "pages");
        facts(
            page,
            site,
            &format!("free on {pages} with blocks of this site"),
        )?;
    }
    more(page, pinning.len())?;
    let words = format!(
        "A page is nearly empty if at most {} of it is in use. The blocks on a page share its free bytes equally: a block that is alone \
         keeps all of them. Resident memory can shrink by that much if these blocks are freed, or allocated together.",
        share(1, NEARLY_EMPTY)
    );
    says(page, &words)
}

fn largest(page: &mut Page<'_, '_>, map: &ProcessMap<'_>) -> io::Result<()> {
    let size = |it: &SiteMemory| {
        let unknown = it.states.unknown.value();
        it.states.resident.value().saturating_add(unknown)
    };
    let mut largest: Vec<_> = map.sites().filter(|it| size(it) > 0).collect();
    largest.sort_by_key(|it| std::cmp::Reverse(size(it)));
    if largest.is_empty() {
        return Ok(());
    }
    let unknown = map.map.residency.unknown_pages.is_some();
    heading(
        page,
        match unknown {
            true => "Most live memory",
            false => "Most resident memory",
        },
    )?;
    for (rank, site) in largest.iter().take(page.options.top).enumerate() {
        let error = plus_minus(site.states.resident.error(), bytes);
        let amount = format!("{}{error}", bytes(size(site)));
        stack::write_title(page, rank + 1, &amount, site.stack)?;
        let free = match site.free {
            0 => String::new(),
            free => format!("{} free beside them on their pages", bytes(free)),
        };
        facts(page, site, &free)?;
    }
    more(page, largest.len())
}

/// The line below a title, and with details the stack.
fn facts(page: &mut Page<'_, '_>, site: &SiteMemory, words: &str) -> io::Result<()> {
    let blocks = match site.kind {
        Kind::Mapped => "mapped (mmap)".to_owned(),
        Kind::Heap => counted(site.count.value(), "block", "blocks"),
    };
    let mut parts = vec![
        words.to_owned(),
        format!("{blocks}: {}", states(&site.states, false)),
    ];
    parts.retain(|part| !part.is_empty());
    let indent = " ".repeat(stack::INDENT);
    for line in super::paragraph::lines(&indent, &parts.join("; "), page.width) {
        writeln!(page.out, "{line}")?;
    }
    let room = page.width.saturating_sub(stack::INDENT);
    let known = site_type::of_stack(page.input, site.stack, room);
    if let Some(words) = known.filter(|_| site.kind == Kind::Heap) {
        writeln!(page.out, "{indent}{words}")?;
    }
    match page.options.details {
        true => stack::write_frames(page, site.stack),
        false => Ok(()),
    }
}

/// Ends a list, and says how much of it is not shown.
fn more(page: &mut Page<'_, '_>, all: usize) -> io::Result<()> {
    if !page.options.details {
        writeln!(page.out)?;
    }
    super::sections::more(page, all)
}
