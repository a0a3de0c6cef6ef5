//! How the cost of an exact recording grows with processes, threads, stacks and blocks.
//!
//! Part of bench.

use std::ffi::OsString;
use std::fmt::Write;

use anyhow::Result;

use super::effort::Effort;
use super::figure::Figure;
use super::measured::{Measured, Tracing};
use super::mode::{EXACT, measure_once};
use super::section::Section;
use super::stats::Spread;
use crate::run;

/// The smallest number of pairs of `malloc` and `free`, so that the start of a run matters little.
const PAIRS: u64 = 500_000;

/// Something that a run can have more of.
struct Dimension {
    /// The name, in the table and for the program.
    name: &'static str,
    meaning: &'static str,
    /// The numbers to measure, in ascending order.
    steps: &'static [u64],
    /// The options for heaptrace.
    options: &'static [&'static str],
}

const DIMENSIONS: [Dimension; 4] = [
    Dimension {
        name: "processes",
        meaning: "processes that run at the same time and share the pairs",
        steps: &[1, 10, 100, 1000],
        options: &[],
    },
    Dimension {
        name: "threads",
        meaning: "threads of one process that share the pairs",
        steps: &[1, 10, 100, 1000],
        options: &[],
    },
    Dimension {
        name: "stacks",
        meaning: "different stacks, more than 20 calls deep",
        steps: &[10, 1000, 100_000, 1_000_000],
        options: &["--max-memory", "4GiB"],
    },
    Dimension {
        name: "blocks",
        meaning: "blocks that are live at the same time",
        steps: &[10, 1000, 100_000, 1_000_000, 10_000_000],
        options: &["--max-memory", "4GiB", "--max-live", "12000000"],
    },
];

/// Measures the dimensions that the filter selects, once each. Growth shows over powers of ten, so noise
/// matters little.
pub(super) fn measure_all(effort: &Effort) -> Result<Section> {
    let mut section = Section::default();
    let program = run::compile_c("xtask/bench/grow.c", &["-O2"])?;
    for dimension in &DIMENSIONS {
        if !effort.wants(&format!("growth: {}", dimension.name)) {
            continue;
        }
        // The agent's cost to start is subtracted, because it does not grow.
        let none = measure(&program, dimension, 1, 1)?;
        let base = none.tracing.map_or(0, |it| it.agent_cpu_ns);
        let mut rows = Vec::new();
        for step in dimension.steps {
            let measured = measure(&program, dimension, *step, PAIRS.max(*step))?;
            let tracing = measured.tracing.unwrap_or_default();
            let agent =
                tracing.agent_cpu_ns.saturating_sub(base) as f64 / tracing.events.max(1) as f64;
            println!(
                "    growth: {step} {}: {:.1} ns, agent {agent:.1} ns an event",
                dimension.name, measured.nanoseconds
            );
            rows.push((*step, measured, agent));
        }
        section.text.push_str(&text(dimension, &rows)?);
        if let [(_, few, few_agent), .., (_, many, many_agent)] = rows.as_slice() {
            let figure = |name: &str, few: f64, many: f64| Figure {
                name: format!("growth: {}, {name}, most to least", dimension.name),
                // There is only one measurement, so its noise on a shared machine is unknown. Half of it is
                // assumed.
                ratio: Spread {
                    median: many / few,
                    min: many / few * 0.75,
                    max: many / few * 1.25,
                },
            };
            section
                .figures
                .push(figure("pair", few.nanoseconds, many.nanoseconds));
            section
                .figures
                .push(figure("agent", *few_agent, *many_agent));
        }
    }
    Ok(section)
}

fn measure(
    program: &std::path::Path,
    dimension: &Dimension,
    step: u64,
    pairs: u64,
) -> Result<Measured> {
    let command: Vec<OsString> = vec![
        program.into(),
        dimension.name.into(),
        step.to_string().into(),
        pairs.to_string().into(),
    ];
    measure_once(&EXACT, &command, dimension.options)
}

fn text(dimension: &Dimension, rows: &[(u64, Measured, f64)]) -> Result<String> {
    let mut page = String::new();
    writeln!(page, "\n## Growth with {}\n", dimension.name)?;
    writeln!(
        page,
        "{PAIRS} pairs of `malloc(64)` and `free`, but at least one for each of the {}. All are recorded. The time per pair is \
         the time of the whole run on all processors, divided by the pairs. If costs grow linearly, the figures per pair and per \
         event stay the same down the column. The agent's time per event excludes its start.\n",
        dimension.meaning
    )?;
    writeln!(
        page,
        "| {} | ns per pair | agent, ns per event | agent, MiB | kernel's maps, MiB | data file, MiB | events | events lost |",
        dimension.name
    )?;
    writeln!(page, "|--:|--:|--:|--:|--:|--:|--:|--:|")?;
    for (step, measured, agent) in rows {
        let tracing = measured.tracing.unwrap_or_default();
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let Tracing { events, lost, .. } = tracing;
        writeln!(
            page,
            "| {step} | {:.0} | {agent:.0} | {:.0} | {:.0} | {:.1} | {events} | {lost} |",
            measured.nanoseconds,
            mib(tracing.agent_peak_bytes),
            mib(tracing.kernel_map_bytes),
            mib(tracing.file_bytes),
        )?;
    }
    Ok(page)
}
