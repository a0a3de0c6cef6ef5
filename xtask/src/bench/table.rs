//! The results as a page of Markdown.
//!
//! Part of bench. It must not measure anything itself.

use std::fmt::Write;

use super::machine::Machine;
use super::stats::Spread;
use super::workload::WORKLOADS;
use super::{FLOOR, MODES};

/// What was measured in one mode.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    /// Nanoseconds per operation, a value per round.
    pub nanoseconds: Vec<f64>,
    /// Events lost, in all rounds.
    pub lost: u64,
}

/// A workload on a number of threads.
#[derive(Clone, Debug)]
pub struct Row {
    /// The workload's name.
    pub workload: &'static str,
    /// The number of its threads.
    pub threads: usize,
    /// What was measured, in the order of the modes.
    pub modes: Vec<Runs>,
}

/// The whole page.
pub fn page(machine: &Machine, rounds: u32, seconds: f64, rows: &[Row]) -> String {
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
    writeln!(page, "# Benchmarks\n")?;
    writeln!(
        page,
        "Written by `cargo xtask bench`; run it for your own machine.\n"
    )?;
    writeln!(page, "{machine}")?;
    writeln!(
        page,
        "The modes are measured in turns, {rounds} rounds of {seconds} s each. A time is the median of the rounds, a ratio the \
         median of the rounds' own ratios to the untraced run; smallest and largest in parentheses. The programs take their \
         times themselves, so starting heaptrace and attaching it is not in them.\n"
    )?;
    for mode in MODES {
        writeln!(page, "- **{}**: {}", mode.name, mode.meaning)?;
    }
    for workload in WORKLOADS {
        if rows.iter().all(|row| row.workload != workload.name) {
            continue;
        }
        writeln!(page, "\n## {}\n", workload.name)?;
        writeln!(page, "An operation is {}.\n", workload.operation)?;
        writeln!(
            page,
            "| threads | mode | ns per operation | ratio | ratio to empty probes | events lost |"
        )?;
        writeln!(page, "|--:|--|--:|--:|--:|--:|")?;
        for row in rows.iter().filter(|row| row.workload == workload.name) {
            write_row(page, row)?;
        }
    }
    write_frame(page, rows)
}

/// What each further frame costs, by the least and the most deep of the workloads that differ in nothing else.
fn write_frame(page: &mut String, rows: &[Row]) -> std::fmt::Result {
    let deep: Vec<(u32, &Row)> = WORKLOADS
        .iter()
        .filter_map(|workload| {
            let row = rows.iter().find(|row| row.workload == workload.name)?;
            Some((workload.depth?, row))
        })
        .collect();
    let (Some((low, first)), Some((high, last))) = (deep.first(), deep.last()) else {
        return Ok(());
    };
    if high <= low {
        return Ok(());
    }
    writeln!(page, "\n## A frame\n")?;
    writeln!(
        page,
        "What each further frame of a stack costs: the difference of the medians {high} and {low} calls deep, by the \
         {} calls between.\n",
        high - low
    )?;
    writeln!(page, "| mode | ns per frame |")?;
    writeln!(page, "|--|--:|")?;
    for (index, mode) in MODES.iter().enumerate() {
        let median = |row: &Row| Spread::of(&row.modes.get(index)?.nanoseconds).map(|it| it.median);
        if let (Some(few), Some(many)) = (median(first), median(last)) {
            let nanoseconds = (many - few) / f64::from(high - low);
            writeln!(page, "| {} | {nanoseconds:.1} |", mode.name)?;
        }
    }
    Ok(())
}

fn write_row(page: &mut String, row: &Row) -> std::fmt::Result {
    let bases = row.modes.first().map_or(&[][..], |runs| &runs.nanoseconds);
    let floor = MODES.iter().position(|mode| mode.name == FLOOR);
    let floor = floor.and_then(|index| row.modes.get(index));
    let floor = floor.map_or(&[][..], |runs| &runs.nanoseconds);
    for (mode, runs) in MODES.iter().zip(&row.modes) {
        writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} |",
            row.threads,
            mode.name,
            cell(Spread::of(&runs.nanoseconds), 1),
            cell(Spread::of_ratios(&runs.nanoseconds, bases), 2),
            cell(Spread::of_ratios(&runs.nanoseconds, floor), 3),
            runs.lost
        )?;
    }
    Ok(())
}

fn cell(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(String::new, |spread| {
        format!(
            "{:.digits$} ({:.digits$}–{:.digits$})",
            spread.median, spread.min, spread.max
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a row shows the median, the range, the ratio to the first mode and what was lost.
    #[test]
    fn rows_show_times_ratios_and_losses() {
        let runs = |nanoseconds: &[f64], lost| Runs {
            nanoseconds: nanoseconds.to_vec(),
            lost,
        };
        let row = Row {
            workload: WORKLOADS[0].name,
            threads: 2,
            modes: vec![
                runs(&[10.0, 20.0, 10.0], 0),
                runs(&[100.0, 100.0, 120.0], 0),
                runs(&[300.0, 400.0, 200.0], 7),
            ],
        };
        let mut text = String::new();
        write_row(&mut text, &row).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "| 2 | untraced | 10.0 (10.0–20.0) | 1.00 (1.00–1.00) | 0.050 (0.033–0.050) | 0 |",
                "| 2 | bystander | 100.0 (100.0–120.0) | 10.00 (5.00–12.00) | 0.333 (0.250–0.600) | 0 |",
                "| 2 | empty probes | 300.0 (200.0–400.0) | 20.00 (20.00–30.00) | 1.000 (1.000–1.000) | 7 |",
            ]
        );
    }

    /// Check that the cost of a frame is the slope between the least and the most deep.
    #[test]
    fn a_frame_costs_what_lies_between() {
        let row = |depth: u32, exact: f64| Row {
            workload: WORKLOADS
                .iter()
                .find(|workload| workload.depth == Some(depth))
                .unwrap()
                .name,
            threads: 1,
            modes: vec![
                Runs {
                    nanoseconds: vec![10.0],
                    lost: 0,
                },
                Runs {
                    nanoseconds: vec![exact],
                    lost: 0,
                },
            ],
        };
        let mut text = String::new();
        write_frame(
            &mut text,
            &[row(1, 1000.0), row(8, 0.0), row(120, 12_900.0)],
        )
        .unwrap();
        assert!(text.contains("| untraced | 0.0 |\n"), "{text}");
        assert!(text.contains("| 100.0 |\n"), "{text}");
        text.clear();
        write_frame(&mut text, &[row(1, 1000.0)]).unwrap();
        assert_eq!(text, "");
    }
}
