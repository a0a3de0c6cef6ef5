//! How sites use their blocks, for people: sizes and lifetimes as bars, reallocations, and what rounding wastes.
//!
//! Stage: output.

use std::io;

use super::page::Page;
use super::rounding_classes::{self, says};
use super::stack;
use crate::join::{Bucket, Kind, Site, Tally, Usage};
use crate::output::usage::{self, Rounded, Row};
use crate::text::{bytes, count, lifetime, plus_minus, share};

/// Columns of the longest bar.
const BAR: usize = 40;

/// Writes how all shown sites together use their blocks.
pub(super) fn of_all(page: &mut Page<'_, '_>) -> io::Result<()> {
    let profile = page.input.profile;
    writeln!(page.out, "{}\n", page.style.bold("All sites together"))?;
    match usage::of_all(profile) {
        Some(usage) => {
            write(page, &usage, true)?;
            let usages = profile.sites.iter().filter_map(|it| profile.usage(it));
            let rounded = usage::rounded(usages);
            rounding(page, &rounded)?;
            rounding_classes::write(page, &rounded)?;
            behind(page, &profile.sites, &usage)?;
        }
        None => says(
            page,
            "sizes and lifetimes: (not recorded; record with --histogram)",
        )?,
    }
    writeln!(page.out)
}

/// Writes how a site uses its blocks.
pub(super) fn of_site(page: &mut Page<'_, '_>, site: &Site) -> io::Result<()> {
    let Some(usage) = page.input.profile.usage(site) else {
        return says(page, "sizes and lifetimes: (not recorded)");
    };
    write(page, usage, site.kind == Kind::Heap)?;
    if site.kind == Kind::Heap {
        rounding(page, &usage::rounded([usage]))?;
    }
    behind(page, std::slice::from_ref(site), usage)
}

/// Says that histograms are older than counters, if they are.
fn behind(page: &mut Page<'_, '_>, sites: &[Site], usage: &Usage) -> io::Result<()> {
    if !usage::is_behind(sites, usage) {
        return Ok(());
    }
    let all = sites.iter().map(|it| it.totals.allocations);
    let words = format!(
        "The histograms have {} of {} allocations, and may lack frees: they are written when they have doubled, and at the end of a run.",
        count(usage::sum(&usage.sizes).count),
        count(all.fold(0, u64::saturating_add))
    );
    says(page, &words)
}

fn write(page: &mut Page<'_, '_>, usage: &Usage, has_lives: bool) -> io::Result<()> {
    let allocated = usage::sum(&usage.sizes);
    says(
        page,
        &format!("sizes of {} requested blocks", number(&allocated)),
    )?;
    bars(page, &usage.sizes, bytes)?;
    if !has_lives {
        return says(page, "lifetimes of mapped memory: (not recorded)");
    }
    lifetimes(page, usage)?;
    growth(page, usage)
}

fn lifetimes(page: &mut Page<'_, '_>, usage: &Usage) -> io::Result<()> {
    let timed = usage::sum(&usage.lifetimes);
    let untimed = match usage.untimed.count {
        0 => String::new(),
        many => format!(
            "; of {} more it is not known, because the events of their frees were lost",
            count(many)
        ),
    };
    if timed.count == 0 {
        return says(
            page,
            &format!("lifetimes: no block was freed in time to be measured{untimed}"),
        );
    }
    let within = |part| {
        let ends = usage::quantile(&usage.lifetimes, part);
        ends.map_or_else(String::new, |(from, to)| range(from, to, lifetime))
    };
    let words = format!(
        "lifetimes of {} freed blocks: p50 {}, p90 {}, p99 {}{untimed}",
        number(&timed),
        within(0.5),
        within(0.9),
        within(0.99)
    );
    says(page, &words)?;
    bars(page, &usage.lifetimes, lifetime)?;
    if usage.freed_elsewhere.count > 0 {
        let words = format!(
            "freed by another thread than their own: {} blocks ({}), {}",
            number(&usage.freed_elsewhere),
            share(usage.freed_elsewhere.count, timed.count),
            bytes(usage.freed_elsewhere.bytes)
        );
        says(page, &words)?;
    }
    Ok(())
}

fn growth(page: &mut Page<'_, '_>, usage: &Usage) -> io::Result<()> {
    if usage.reallocations.count == 0 {
        return Ok(());
    }
    let copied = bytes(usage.moves.bytes);
    let error = plus_minus(usage.moves.bytes_error, bytes);
    // A sample may lack the block from which a block came.
    let chains = match page.input.profile.info.mode.is_sampled() {
        true => String::new(),
        false => format!(" ({} began a chain)", number(&usage.chains)),
    };
    let words = format!(
        "reallocated: {} times{chains}; {} moved the block, and copied {copied}{error}",
        number(&usage.reallocations),
        number(&usage.moves),
    );
    says(page, &words)
}

fn rounding(page: &mut Page<'_, '_>, families: &[Rounded]) -> io::Result<()> {
    for all in families.iter().filter(|it| it.rounding.bytes > 0) {
        let it = &all.rounding;
        let unfreed = match it.unfreed {
            0 => String::new(),
            some => format!(", {} of it in blocks that were not freed", bytes(some)),
        };
        let words = format!(
            "rounding{}: {}{} beyond the requested bytes ({}){unfreed}",
            match all.is_certain {
                true => format!(" by {}", it.family.name()),
                false => format!(", if all blocks are of {}", it.family.name()),
            },
            bytes(it.bytes),
            plus_minus(it.error, bytes),
            share(it.bytes, all.requested),
        );
        says(page, &words)?;
    }
    Ok(())
}

/// A line for each of few ranges: the range, the blocks, their share, their bytes, and a bar as long as the share.
fn bars(
    page: &mut Page<'_, '_>,
    buckets: &[Bucket],
    unit: impl Fn(u64) -> String,
) -> io::Result<()> {
    let rows = usage::few_rows(buckets);
    let all = usage::sum(buckets).count;
    let most = rows.iter().map(|it| it.blocks.count).max().unwrap_or(0);
    let cells = |row: &Row| {
        [
            range(row.from, row.to, &unit),
            number(&row.blocks),
            share(row.blocks.count, all),
            bytes(row.blocks.bytes),
        ]
    };
    let lines: Vec<_> = rows.iter().map(cells).collect();
    let widths: [usize; 4] = std::array::from_fn(|column| {
        let cells = lines.iter().map(|line| line[column].chars().count());
        cells.max().unwrap_or(0)
    });
    let used = stack::INDENT + 2 + widths.iter().map(|it| it + 2).sum::<usize>();
    let room = page.width.saturating_sub(used).min(BAR);
    for (row, [range, blocks, part, size]) in rows.iter().zip(&lines) {
        let length = (row.blocks.count as f64 / most.max(1) as f64 * room as f64).ceil();
        let line = format!(
            "{range:<a$}  {blocks:>b$}  {part:>c$}  {size:>d$}  ",
            a = widths[0],
            b = widths[1],
            c = widths[2],
            d = widths[3]
        );
        let bar = page.style.number(&"█".repeat((length as usize).min(room)));
        writeln!(page.out, "       {}", format!("{line}{bar}").trim_end())?;
    }
    Ok(())
}

/// A range with the unit once, where both ends have the same.
fn range(from: u64, to: u64, unit: impl Fn(u64) -> String) -> String {
    let (from, to) = (unit(from), unit(to));
    if from == to {
        return from;
    }
    match (from.split_once(' '), to.split_once(' ')) {
        (Some((number, unit)), Some((_, same))) if unit == same => format!("{number} to {to}"),
        _ => format!("{from} to {to}"),
    }
}

fn number(tally: &Tally) -> String {
    let error = plus_minus(tally.count_error, count);
    format!("{}{error}", count(tally.count))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that ranges name a unit once.
    #[test]
    fn ranges_are_short() {
        assert_eq!(range(24, 27, bytes), "24 to 27 B");
        assert_eq!(range(5, 5, bytes), "5 B");
        assert_eq!(range(1000, 2000, lifetime), "1.0 to 2.0 µs");
        assert_eq!(range(900, 2000, lifetime), "900 ns to 2.0 µs");
    }
}
