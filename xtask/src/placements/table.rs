//! The results as a page of Markdown.
//!
//! Part of placements. It must not measure anything itself.

use std::fmt::Write;

use crate::bench::machine::Machine;
use crate::bench::stats::Spread;

/// A function of an allocator.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// The allocator.
    pub(super) allocator: String,
    /// The function's names.
    pub(super) functions: String,
    /// Where in the function the probe stands.
    pub(super) offset: u64,
    /// The instruction there.
    pub(super) instruction: String,
    /// Nanoseconds without a probe, with one at the entry, and with one where heaptrace places it.
    pub(super) untraced: Spread,
    /// With a probe at the entry, and whether the kernel executes the instruction out of line.
    pub(super) entry: (Spread, bool),
    /// The same where heaptrace places it.
    pub(super) placed: (Spread, bool),
}

/// The whole page.
pub(super) fn page(machine: &Machine, rounds: u32, seconds: f64, rows: &[Row]) -> String {
    let mut page = String::new();
    // Writing to a String doesn't fail.
    let _ = write_page(&mut page, machine, rounds, seconds, rows);
    page
}

fn write_page(
    page: &mut String,
    machine: &Machine,
    rounds: u32,
    seconds: f64,
    rows: &[Row],
) -> std::fmt::Result {
    writeln!(page, "# Where probes stand, and what they cost there\n")?;
    writeln!(
        page,
        "Written by `cargo xtask placements`; run it for your own machine. The places are those of this run's libraries: \
         heaptrace finds them anew in each file that it probes.\n"
    )?;
    writeln!(page, "{machine}")?;
    writeln!(
        page,
        "An operation is one call of the function and, where it gives a block, the `free` for it, in a loop that does nothing else. \
         One probe without a program is on the function, at its entry or as placed. A time is the least of {rounds} rounds of \
         {seconds} s, measured in turns: what else the machine does only adds to it. **2×** marks an instruction that the kernel executes out of line, with a second trap.\n"
    )?;
    writeln!(
        page,
        "| allocator | function | place | instruction | untraced, ns | probe at the entry, ns | as placed, ns |"
    )?;
    writeln!(page, "|--|--|--:|--|--:|--:|--:|")?;
    for row in rows {
        writeln!(
            page,
            "| {} | {} | +{} | `{}` | {} | {} | {} |",
            row.allocator,
            row.functions.replace('/', ", "),
            row.offset,
            row.instruction,
            spread(row.untraced),
            cell(row.entry),
            cell(row.placed)
        )?;
    }
    Ok(())
}

fn cell((time, is_stepped): (Spread, bool)) -> String {
    let mark = if is_stepped { " **2×**" } else { "" };
    format!("{}{mark}", spread(time))
}

/// The median, with the smallest and the largest time.
fn spread(time: Spread) -> String {
    format!("{:.0} ({:.0}–{:.0})", time.median, time.min, time.max)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a second trap is marked, and only where there is one.
    #[test]
    fn second_traps_are_marked() {
        let time = Spread {
            median: 1234.0,
            min: 1000.0,
            max: 2000.0,
        };
        assert_eq!(cell((time, false)), "1234 (1000–2000)");
        assert_eq!(cell((time, true)), "1234 (1000–2000) **2×**");
    }
}
