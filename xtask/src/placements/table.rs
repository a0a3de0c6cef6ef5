//! Writes the results as a page of Markdown.
//!
//! Part of placements. It must not measure anything itself.

use std::fmt::Write;

use crate::bench::machine::Machine;
use crate::bench::stats::Spread;

/// The measurements of one function of an allocator.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// The allocator's name and version.
    pub(super) allocator: String,
    /// The function's names.
    pub(super) functions: String,
    /// The offset of the probe location in the function.
    pub(super) offset: u64,
    /// The instruction at that location.
    pub(super) instruction: String,
    /// Nanoseconds per operation without a probe.
    pub(super) untraced: Spread,
    /// The same with a probe at the entry, and whether the kernel executes the instruction out of line.
    pub(super) entry: (Spread, bool),
    /// The same with a probe at heaptrace's location.
    pub(super) placed: (Spread, bool),
}

/// Builds the whole page.
pub(super) fn page(
    machine: &Machine,
    rounds: u32,
    seconds: f64,
    rows: &[Row],
    skipped: &[String],
) -> String {
    let mut page = String::new();
    // Writing to a String can't fail.
    let _ = write_page(&mut page, machine, rounds, seconds, rows);
    if !skipped.is_empty() {
        let skipped = skipped.join("; ");
        let _ = writeln!(
            page,
            "\nNot measured, because the measuring program has no call of them: {skipped}."
        );
    }
    page
}

fn write_page(
    page: &mut String,
    machine: &Machine,
    rounds: u32,
    seconds: f64,
    rows: &[Row],
) -> std::fmt::Result {
    writeln!(page, "# Probe locations and their costs\n")?;
    writeln!(
        page,
        "Written by `cargo xtask placements`; run it for your own machine. The locations are those of this run's libraries: \
         heaptrace computes them anew for each file that it probes.\n"
    )?;
    writeln!(page, "{machine}")?;
    writeln!(
        page,
        "An operation is one call of the function, and the `free` of its block if it returns one, in a loop that does nothing \
         else. The function has one probe without a program, at its entry or at heaptrace's location. A time is the median of \
         {rounds} rounds of {seconds} s, with the smallest and the largest in parentheses. The three ways are measured \
         alternately. At offset +0 both probes are at the entry, and their times differ only by noise. **2×** marks an \
         instruction that the kernel executes out of line, with a second trap.\n"
    )?;
    writeln!(
        page,
        "| allocator | function | offset | instruction | untraced, ns | probe at the entry, ns | probe at heaptrace's location, ns |"
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

    /// Check that a cell shows the median and the range, and marks a second trap.
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
