//! Leaks for people: what grows, how fast and how surely, and what ended processes left.
//!
//! Stage: output. Shows what was found, and says what can't be seen.

use std::io::{self, Write};

use super::page::{Page, ReportOptions};
use super::sections::{heading, more, place, says, sites};
use super::{ends, exceeded, generations, header, stack, unreachable};
use crate::join::Kind;
use crate::output::error::OutputError;
use crate::output::leaks::{FEWEST, Growth, Leaks, Left, Unreachable, rate};
use crate::output::moments::moments;
use crate::output::report_input::ReportInput;
use crate::text::{bytes, count, duration, share};

/// Writes what was found.
pub fn write_leaks(
    input: &ReportInput<'_>,
    leaks: &Leaks,
    options: &ReportOptions,
    out: &mut dyn Write,
) -> Result<(), OutputError> {
    let page = &mut Page::new(input, options, out);
    header::write(page)?;
    happened(page)?;
    unreachable::write(page, &leaks.unreachable)?;
    growing(page, leaks)?;
    unsure(page, leaks)?;
    left(page, leaks)?;
    generations::write(page, leaks)?;
    suppressed(page, leaks)?;
    Ok(())
}

/// Writes which processes crashed or were killed, and which limits were exceeded.
fn happened(page: &mut Page<'_, '_>) -> io::Result<()> {
    if moments(page.input).is_empty() {
        return Ok(());
    }
    ends::write(page)?;
    exceeded::write(page)?;
    writeln!(page.out)
}

fn growing(page: &mut Page<'_, '_>, leaks: &Leaks) -> io::Result<()> {
    let time = format!(
        "from {} to {} into the run",
        duration(leaks.from_ns),
        duration(leaks.until_ns)
    );
    if !leaks.is_long_enough {
        heading(page, "Whether anything grows can't be said")?;
        let words = format!(
            "The recording has {} {time}, and {FEWEST} are needed. Record for longer, or with a shorter --interval; --from looks at an \
             earlier time, too.",
            match leaks.steps {
                1 => "one update".to_owned(),
                many => format!("{many} updates"),
            }
        );
        return says(page, &words);
    }
    let found = leaks.growing.len();
    if found == 0 {
        heading(page, &format!("No site grows {time}"))?;
        return says(
            page,
            "A leak that is slower than this recording can show, or that comes in bursts, needs a longer one.",
        );
    }
    let of = sites(leaks.changed);
    let found_words = count(found as u64);
    heading(
        page,
        &format!("Growing: {found_words} of {of} that changed, {time}"),
    )?;
    for (rank, growth) in leaks.growing.iter().take(page.options.top).enumerate() {
        site(page, rank + 1, growth, &leaks.unreachable)?;
    }
    more(page, found)?;
    let advice = match leaks.unreachable.searches.is_empty() {
        true => {
            "A cache that still fills looks like a leak: what a program can still reach is not seen here. Record for longer than it \
             needs to fill, look whether its blocks are ever freed, or record with --reachable."
        }
        false => {
            "A cache that still fills looks like a leak whose blocks something still points to. Record for longer than it needs to \
             fill, or look whether its blocks are ever freed."
        }
    };
    says(page, advice)
}

fn unsure(page: &mut Page<'_, '_>, leaks: &Leaks) -> io::Result<()> {
    if leaks.unsure.is_empty() {
        return Ok(());
    }
    if !page.options.details {
        let grew = sites(leaks.unsure.len());
        let words = format!(
            "{grew} grew and never shrank, but too seldom to be sure, or not at the end, as a cache does that has filled; \
             --details shows them."
        );
        return says(page, &words);
    }
    heading(
        page,
        "Grew and never shrank, but too seldom to be sure, or not at the end",
    )?;
    for (rank, growth) in leaks.unsure.iter().take(page.options.top).enumerate() {
        stack::write_title(page, rank + 1, &bytes(growth.grew), growth.stack)?;
        let facts = format!("{}; {}", steps(growth), freed(growth));
        origin(page, &facts, growth)?;
    }
    more(page, leaks.unsure.len())
}

fn site(
    page: &mut Page<'_, '_>,
    rank: usize,
    growth: &Growth,
    unreachable: &Unreachable,
) -> io::Result<()> {
    let [middle, low, high] = growth.bytes_per_second;
    stack::write_title(page, rank, &format!("+{}", rate(middle)), growth.stack)?;
    let mut facts = vec![format!(
        "{}, confidence {}",
        steps(growth),
        growth.confidence()
    )];
    if low > 0.0 {
        facts.push(format!("between {} and {}", rate(low), rate(high)));
    }
    facts.push(freed(growth));
    facts.extend(reached(growth, unreachable));
    let survival = growth.survival;
    if survival.at_least > 0 && growth.freed > 0 {
        facts.push(format!(
            "of {} that were live at {}, at least {} still are",
            bytes(survival.live),
            duration(survival.from_ns),
            share(survival.at_least, survival.live)
        ));
    }
    origin(page, &facts.join("; "), growth)
}

/// How a site grew: `live 2.1 MiB in 5,432 blocks, grew by 1.5 MiB in 11 of 11 steps`.
fn steps(growth: &Growth) -> String {
    let totals = &growth.totals;
    let held = totals.live_bytes.saturating_add(totals.left_bytes);
    let blocks = totals
        .live_allocations
        .saturating_add(totals.left_allocations);
    let now = match held {
        0 => "freed at the end".to_owned(),
        held => format!("live {} in {} blocks", bytes(held), count(blocks)),
    };
    format!(
        "{now}, grew by {} in {} of {} steps",
        bytes(growth.grew),
        growth.rose,
        growth.floors.len() - 1
    )
}

/// Whether a search has found blocks of a site that nothing points to; `None` if its process was not searched. Mappings are not.
fn reached(growth: &Growth, unreachable: &Unreachable) -> Option<String> {
    let mut searches = unreachable.searches.iter();
    searches.find(|it| it.process == growth.process && it.refused.is_empty())?;
    let mut sites = unreachable.sites.iter();
    let found = sites.find(|it| it.process == growth.process && it.stack == growth.stack);
    match found {
        Some(site) => Some(format!(
            "nothing points to {} of its blocks",
            count(site.all.live_allocations)
        )),
        None if growth.kind == Kind::Heap => {
            Some("none of its blocks was found unreachable".to_owned())
        }
        None => None,
    }
}

/// What was freed of a site's blocks.
fn freed(growth: &Growth) -> String {
    if !growth.ever_freed {
        return "no block was ever freed".to_owned();
    }
    if growth.freed == 0 {
        return "no block was freed in this time".to_owned();
    }
    format!(
        "{} of what was allocated in this time was freed",
        share(growth.freed, growth.allocated)
    )
}

fn left(page: &mut Page<'_, '_>, leaks: &Leaks) -> io::Result<()> {
    if leaks.left.is_empty() {
        return Ok(());
    }
    let sum = leaks.left.iter().fold((0u64, 0u64), |sum, it| {
        (
            sum.0.saturating_add(it.totals.left_bytes),
            sum.1.saturating_add(it.totals.left_allocations),
        )
    });
    heading(
        page,
        &format!(
            "Not freed when the process ended: {} in {} blocks, from {}",
            bytes(sum.0),
            count(sum.1),
            sites(leaks.left.len())
        ),
    )?;
    for (rank, it) in leaks.left.iter().take(page.options.top).enumerate() {
        remaining(page, rank + 1, it)?;
    }
    more(page, leaks.left.len())?;
    says(
        page,
        "Whether anything still pointed to these blocks is not known: end the recording before the process ends, with --reachable.",
    )
}

fn remaining(page: &mut Page<'_, '_>, rank: usize, left: &Left) -> io::Result<()> {
    stack::write_title(page, rank, &bytes(left.totals.left_bytes), left.stack)?;
    let facts = format!(
        "{} of {} blocks",
        count(left.totals.left_allocations),
        count(left.totals.allocations)
    );
    place(page, &facts, left.process, left.kind, left.stack)
}

fn suppressed(page: &mut Page<'_, '_>, leaks: &Leaks) -> io::Result<()> {
    for it in &leaks.suppressed {
        let words = format!(
            "suppressed by leak:{}: {} with {}",
            crate::text::escape(&it.pattern),
            sites(usize::try_from(it.sites).unwrap_or(usize::MAX)),
            bytes(it.bytes)
        );
        writeln!(page.out, "{}", page.style.dim(&words))?;
    }
    Ok(())
}

fn origin(page: &mut Page<'_, '_>, facts: &str, growth: &Growth) -> io::Result<()> {
    place(page, facts, growth.process, growth.kind, growth.stack)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::{ProcessId, Reachability, StackId, Totals};
    use crate::output::leaks::UnreachableSite;

    /// Check that a growing site says what a search of its process has found, and nothing if there was none.
    #[test]
    fn growing_sites_say_what_is_unreachable() {
        let growth = |process, stack, kind| Growth {
            process: ProcessId(process),
            stack: StackId(stack),
            kind,
            totals: Totals::default(),
            floors: Vec::new(),
            rose: 0,
            grew: 0,
            chance: 0.0,
            bytes_per_second: [0.0; 3],
            allocated: 0,
            freed: 0,
            ever_freed: false,
            error: 0,
            survival: Default::default(),
        };
        let search = |process, refused: &str| Reachability {
            process: ProcessId(process),
            refused: refused.to_owned(),
            ..Reachability::default()
        };
        let found = Unreachable {
            searches: vec![search(0, ""), search(1, "it was too slow")],
            sites: vec![UnreachableSite {
                process: ProcessId(0),
                stack: StackId(3),
                all: Totals {
                    live_allocations: 1_234,
                    ..Totals::default()
                },
                direct: Totals::default(),
                indirect: Totals::default(),
            }],
            ..Unreachable::default()
        };
        for (process, stack, kind, expected) in [
            (0, 3, Kind::Heap, "nothing points to 1,234 of its blocks"),
            (0, 4, Kind::Heap, "none of its blocks was found unreachable"),
            (0, 4, Kind::Mapped, ""),
            (1, 3, Kind::Heap, ""),
            (2, 3, Kind::Heap, ""),
        ] {
            let words = reached(&growth(process, stack, kind), &found);
            assert_eq!(words.unwrap_or_default(), expected, "{process} {stack}");
        }
    }
}
