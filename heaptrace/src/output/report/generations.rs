//! Generations for people: how much of what was allocated between two marks lives on, and which sites keep it.
//!
//! Stage: output. A part of the page of leaks.

use std::io;

use super::amount::Amount;
use super::page::Page;
use super::sections::{heading, more, place, says, sites};
use super::{stack, table};
use crate::join::Totals;
use crate::output::leaks::{Born, Leaks, Survivor};
use crate::output::metric::Metric;
use crate::output::sum;
use crate::text::{bytes, count, counted, duration, share};

/// Most generations of which each has a row; older ones share a row.
const ROWS: usize = 12;

/// Writes the generations; nothing without marks.
pub(super) fn write(page: &mut Page<'_, '_>, leaks: &Leaks) -> io::Result<()> {
    let generations = &leaks.generations;
    if generations.all.is_empty() {
        return Ok(());
    }
    let is_sampled = page.input.profile.info.mode.is_sampled();
    let estimates = if is_sampled { ", as estimates" } else { "" };
    heading(
        page,
        &format!("Generations: what was allocated between marks, and lives{estimates}"),
    )?;
    ages(page, &generations.all)?;
    if generations.without_room > 0 {
        says(
            page,
            "There was no room for all: what found none is in the first row, and missing in the others.",
        )?;
    }
    if generations.survivors.is_empty() {
        let have_ended = page.input.profile.processes.iter().all(|it| it.ended);
        return says(
            page,
            match have_ended {
                true => {
                    "Nothing that was allocated between two marks was left when the processes ended. `--at -1s` shows them a second \
                     before the end of the recording."
                }
                false => {
                    "Nothing that was allocated between two marks is live: no site keeps memory beyond a mark."
                }
            },
        );
    }
    heading(
        page,
        &format!(
            "Allocated since the first mark and live beyond a later one: {}",
            sites(generations.surviving)
        ),
    )?;
    let survivors = generations.survivors.iter().take(page.options.top);
    for (rank, survivor) in survivors.enumerate() {
        site(page, rank + 1, survivor)?;
    }
    more(page, generations.surviving)?;
    let mut words = "A leak keeps the same share of each generation; a cache that is full keeps less of older ones.".to_owned();
    if is_sampled {
        words.push_str(" A site that allocates little between two marks may have no sample there.");
    }
    says(page, &words)
}

/// The table of all generations.
fn ages(page: &mut Page<'_, '_>, all: &[Born]) -> io::Result<()> {
    let now = page.input.profile.duration_ns;
    let age = |born: &Born| {
        let ages = [born.until_ns, born.mark.map_or(0, |it| it.at_ns)];
        let [youngest, oldest] = ages.map(|at| duration(now.saturating_sub(at)));
        format!("{youngest} to {oldest}")
    };
    let mut rows = vec![table::row([
        "since",
        "age",
        "allocated",
        "freed",
        "at next mark",
        "live",
        "blocks",
    ])];
    let hidden = if page.options.details {
        0
    } else {
        // The first row is what was there before the first mark. Two that are joined save a row.
        match all.len().saturating_sub(ROWS + 1) {
            1 => 0,
            many => many,
        }
    };
    let mut row = |since: String, age: String, totals: &Totals, next: Option<u64>| {
        let blocks = totals
            .live_allocations
            .saturating_add(totals.left_allocations);
        rows.push(table::row([
            since,
            age,
            bytes(totals.allocated_bytes),
            share(totals.freed_bytes, totals.allocated_bytes),
            next.map_or_else(String::new, bytes),
            bytes(totals.live_bytes.saturating_add(totals.left_bytes)),
            count(blocks),
        ]));
    };
    for (at, born) in all.iter().enumerate() {
        let Some(mark) = born.mark else {
            row("begin".to_owned(), age(born), &born.totals, None);
            continue;
        };
        if at == hidden && hidden > 0 {
            let joined = all.get(1..=hidden).unwrap_or_default();
            let totals = sum::of(joined.iter().map(|it| &it.totals));
            let first = joined.first().and_then(|it| it.mark);
            let from = first.map_or(0, |it| it.at_ns);
            let ages = [born.until_ns, from].map(|at| duration(now.saturating_sub(at)));
            row(
                format!(
                    "marks {} to {}",
                    first.map_or(0, |it| it.number),
                    mark.number
                ),
                ages.join(" to "),
                &totals,
                None,
            );
        } else if at > hidden {
            let next = born.survived.first().map(|it| it.1);
            row(
                format!("mark {}", mark.number),
                age(born),
                &born.totals,
                next,
            );
        }
    }
    table::write(page.out, &rows, &[0], page.style)?;
    writeln!(page.out)
}

fn site(page: &mut Page<'_, '_>, rank: usize, survivor: &Survivor) -> io::Result<()> {
    let totals = &survivor.totals;
    let has_left = totals.left_bytes > totals.live_bytes;
    let metric = match has_left {
        true => Metric::LeftBytes,
        false => Metric::LiveBytes,
    };
    let amount = Amount::new(&page.intervals, metric, totals);
    stack::write_title(page, rank, &amount.value(), survivor.stack)?;
    let blocks = totals
        .live_allocations
        .saturating_add(totals.left_allocations);
    let closed = closed(page, survivor);
    let keeping = closed.iter().filter(|it| it.held() > 0).count();
    let mut facts = Vec::new();
    if let Some(range) = amount.range() {
        facts.push(range);
    }
    facts.push(format!(
        "in {} blocks of {}; {} of what it allocated between the marks is freed",
        count(blocks),
        counted(keeping as u64, "generation", "generations"),
        match totals.freed_bytes {
            0 => "none".to_owned(),
            freed => share(freed, totals.allocated_bytes),
        }
    ));
    facts.extend(kept(&closed));
    if let Some(mark) = survivor.oldest().and_then(|it| it.mark) {
        let oldest = page.input.profile.duration_ns.saturating_sub(mark.at_ns);
        facts.push(format!("the oldest up to {} old", duration(oldest)));
    }
    place(
        page,
        &facts.join("; "),
        survivor.process,
        survivor.kind,
        survivor.stack,
    )
}

/// What a site allocated between two marks each, but what it did after the last one.
fn closed<'a>(page: &Page<'_, '_>, survivor: &'a Survivor) -> Vec<&'a Born> {
    let last = page.input.profile.marks.last().map(|it| it.number);
    let born = survivor.born.iter();
    born.filter(|it| it.mark.map(|it| it.number) != last)
        .collect()
}

/// What is left of the first generation and of the last whole one: a leak keeps as much of both.
fn kept(closed: &[&Born]) -> Option<String> {
    let of = |it: &Born| share(it.held(), it.totals.allocated_bytes);
    let mut born = closed.iter().filter(|it| it.totals.allocated_bytes > 0);
    let (oldest, last) = (born.next()?, born.next_back()?);
    Some(format!(
        "{} of the oldest generation live, {} of the last whole one",
        of(oldest),
        of(last)
    ))
}
