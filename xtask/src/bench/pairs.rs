//! Measures the cost of one operation: the small programs in all modes.
//!
//! Part of bench.

use std::fmt::Write;

use anyhow::Result;

use super::cell::cell;
use super::effort::Effort;
use super::figure::Figure;
use super::machine::Machine;
use super::measured::Runs;
use super::mode::{EXACT, FLOOR, Mode, SAMPLED, measure};
use super::section::Section;
use super::stats::Spread;
use super::workload::{WORKLOADS, Workload};

/// A workload on a number of threads.
struct Row {
    workload: &'static Workload,
    threads: usize,
    /// The measurements, in the order of the workload's modes.
    runs: Vec<Runs>,
}

/// Measures the workloads that the filter selects.
pub(super) fn measure_all(machine: &Machine, effort: &Effort) -> Result<Section> {
    let mut rows = Vec::new();
    for workload in WORKLOADS.iter().filter(|it| effort.wants(it.name)) {
        let mut counts = vec![1, machine.cpus];
        counts.dedup();
        for threads in counts {
            let command = workload.command(effort.seconds, threads)?;
            rows.push(Row {
                workload,
                threads,
                runs: measure(workload.name, &command, workload.modes, effort.rounds)?,
            });
        }
    }
    Ok(Section {
        text: text(&rows)?,
        figures: rows.iter().flat_map(Row::figures).collect(),
    })
}

impl Row {
    fn in_mode(&self, mode: Mode) -> Option<&Runs> {
        let modes = self.workload.modes.iter().zip(&self.runs);
        modes
            .filter(|(it, _)| it.name == mode.name)
            .map(|(_, runs)| runs)
            .next()
    }

    /// The figures that depend on heaptrace's kernel programs: ratios to empty probes.
    fn figures(&self) -> Vec<Figure> {
        let figure = |mode: Mode| {
            Some(Figure {
                name: format!(
                    "{}, {} threads, {}",
                    self.workload.name, self.threads, mode.name
                ),
                ratio: self.in_mode(mode)?.ratio_to(self.in_mode(FLOOR)?)?,
            })
        };
        [SAMPLED, EXACT].into_iter().filter_map(figure).collect()
    }
}

fn text(rows: &[Row]) -> Result<String> {
    let mut page = String::new();
    for workload in WORKLOADS {
        let of_workload: Vec<&Row> = rows
            .iter()
            .filter(|row| row.workload.name == workload.name)
            .collect();
        if of_workload.is_empty() {
            continue;
        }
        writeln!(page, "\n## {}\n", workload.name)?;
        writeln!(page, "An operation is {}.\n", workload.operation)?;
        writeln!(
            page,
            "| threads | mode | ns per operation | ratio | ratio to empty probes | events lost |"
        )?;
        writeln!(page, "|--:|--|--:|--:|--:|--:|")?;
        for row in of_workload {
            write_row(&mut page, row)?;
        }
    }
    write_frames(&mut page, rows)?;
    Ok(page)
}

fn write_row(page: &mut String, row: &Row) -> std::fmt::Result {
    let none = Runs::default();
    let base = row.runs.first().unwrap_or(&none);
    let floor = row.in_mode(FLOOR).unwrap_or(&none);
    for (mode, runs) in row.workload.modes.iter().zip(&row.runs) {
        writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} |",
            row.threads,
            mode.name,
            cell(Spread::of(&runs.nanoseconds()), 1),
            cell(runs.ratio_to(base), 2),
            cell(runs.ratio_to(floor), 3),
            runs.lost()
        )?;
    }
    Ok(())
}

/// Writes the cost of each further frame, from the least and the most deep of the workloads that differ only
/// in depth.
fn write_frames(page: &mut String, rows: &[Row]) -> std::fmt::Result {
    let slopes = [false, true].map(|pointers| {
        let deep = rows.iter().filter(|row| {
            row.threads == 1
                && row.workload.depth.is_some()
                && row.workload.has_frame_pointers() == pointers
        });
        let deep: Vec<&Row> = deep.collect();
        let (first, last) = (*deep.first()?, *deep.last()?);
        let (low, high) = (first.workload.depth?, last.workload.depth?);
        let median = |row: &Row| Some(Spread::of(&row.in_mode(EXACT)?.nanoseconds())?.median);
        let nanoseconds = (median(last)? - median(first)?) / f64::from(high.checked_sub(low)?);
        (high > low).then_some((low, high, nanoseconds))
    });
    if slopes.iter().all(Option::is_none) {
        return Ok(());
    }
    writeln!(page, "\n## A frame\n")?;
    writeln!(
        page,
        "The cost of each further frame of a stack if every allocation is recorded: the difference of the medians, divided by \
         the difference in depth.\n"
    )?;
    writeln!(page, "| code | calls deep | ns per frame |")?;
    writeln!(page, "|--|--|--:|")?;
    for (code, slope) in ["without frame pointers", "with frame pointers"]
        .iter()
        .zip(slopes)
    {
        if let Some((low, high, nanoseconds)) = slope {
            writeln!(page, "| {code} | {low} and {high} | {nanoseconds:.1} |")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::measured::{Measured, Tracing};
    use super::*;

    fn runs(nanoseconds: &[f64], lost: u64) -> Runs {
        let measured = nanoseconds.iter().map(|nanoseconds| Measured {
            nanoseconds: *nanoseconds,
            tracing: Some(Tracing {
                lost,
                ..Tracing::default()
            }),
            ..Measured::default()
        });
        Runs(measured.collect())
    }

    fn row(name: &str, runs: Vec<Runs>) -> Row {
        Row {
            workload: WORKLOADS.iter().find(|it| it.name == name).unwrap(),
            threads: 1,
            runs,
        }
    }

    /// Check that a row shows the median, the range, the ratios to the first mode and to empty probes, and
    /// the losses.
    #[test]
    fn rows_show_times_ratios_and_losses() {
        let row = row(
            "a pair 8 calls deep",
            vec![
                runs(&[10.0, 20.0, 10.0], 0),
                runs(&[100.0, 100.0, 120.0], 0),
                runs(&[300.0, 400.0, 240.0], 7),
            ],
        );
        let mut text = String::new();
        write_row(&mut text, &row).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "| 1 | untraced | 10.0 (10.0–20.0) | 1.00 (1.00–1.00) | 0.100 (0.083–0.200) | 0 |",
                "| 1 | empty probes | 100.0 (100.0–120.0) | 10.00 (5.00–12.00) | 1.000 (1.000–1.000) | 0 |",
                "| 1 | sampled | 300.0 (240.0–400.0) | 24.00 (20.00–30.00) | 3.000 (2.000–4.000) | 21 |",
            ]
        );
        let figures = row.figures();
        assert_eq!(figures.len(), 1, "{figures:?}");
        assert_eq!(figures[0].name, "a pair 8 calls deep, 1 threads, sampled");
        assert!((figures[0].ratio.median - 3.0).abs() < 1e-9);
    }

    /// Check that the cost of a frame is the slope between the least and the most deep workload of the same
    /// kind of code.
    #[test]
    fn the_cost_of_a_frame_is_the_slope() {
        let deep = |name, exact| {
            let mut all = vec![runs(&[1.0], 0); 3];
            all.push(runs(&[exact], 0));
            row(name, all)
        };
        let mut text = String::new();
        let rows = [
            deep("a pair 1 call deep", 1000.0),
            deep("a pair 8 calls deep", 0.0),
            deep("a pair 120 calls deep", 12_900.0),
            deep("a pair 8 calls deep, with frame pointers", 5.0),
        ];
        write_frames(&mut text, &rows).unwrap();
        assert!(
            text.contains("| without frame pointers | 1 and 120 | 100.0 |\n"),
            "{text}"
        );
        assert!(!text.contains("| with frame"), "{text}");
        text.clear();
        write_frames(&mut text, &rows[..1]).unwrap();
        assert_eq!(text, "");
    }
}
