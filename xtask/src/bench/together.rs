//! Compares a program under a sampling profiler with the same program without it, while both run on one processor.
//!
//! Part of bench. The kernel gives each of the two some milliseconds by turns, so a machine whose speed changes, or that has other guests,
//! affects both. Rounds that follow each other differ by ten percent and more on such a machine.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use super::cell::cell;
use super::effort::Effort;
use super::machine::Machine;
use super::measured::{Measured, Tracing};
use super::mode::{data_file, wait_for};
use super::profilers::{PROFILERS, Profiler, Tools, Work, works};
use super::programs::{self, starts_server};
use super::section::Section;
use super::stats::Spread;

/// The words that keep a program on one processor.
const ON_ONE_PROCESSOR: [&str; 3] = ["taskset", "-c", "0"];

/// Two ways to run a program at the same time.
struct Pair {
    profiler: &'static Profiler,
    base: &'static Profiler,
}

/// A program with nothing beside the same with nothing, which shows what the method itself can tell, and each sampling profiler.
fn pairs() -> Vec<Pair> {
    let pair = |profiler: &'static Profiler| {
        let base = PROFILERS.get(profiler.base)?;
        let is_of_use = profiler.samples() && (profiler.name != base.name || profiler.base == 0);
        is_of_use.then_some(Pair { profiler, base })
    };
    PROFILERS.iter().filter_map(pair).collect()
}

/// Measures the programs that the filter selects.
pub(super) fn measure_all(effort: &Effort) -> Result<Section> {
    let folder = programs::folder()?;
    let mut works = works(effort, &folder)?;
    // A server waits for requests, and the pair counts what it does in a given time.
    works.retain(|it| it.timed.is_some() && !starts_server(&it.command));
    if works.is_empty() {
        return Ok(Section::default());
    }
    let tools = Tools::prepare()?;
    let pairs = pairs();
    let mut ratios = vec![vec![Vec::new(); pairs.len()]; works.len()];
    for round in 1..=effort.rounds {
        for (work, of_work) in works.iter().zip(&mut ratios) {
            for (pair, ratios) in pairs.iter().zip(of_work) {
                let ratio = pair.measure(work, &tools)?;
                println!(
                    "    {}, round {round} of {}, {}: {ratio:.3}",
                    work.name, effort.rounds, pair.profiler.name
                );
                ratios.push(ratio);
            }
        }
    }
    let mut text =
        "\n| program | profiler | beside | processor time, ratio |\n|--|--|--|--:|\n".to_owned();
    for (work, of_work) in works.iter().zip(&ratios) {
        for (pair, ratios) in pairs.iter().zip(of_work) {
            writeln!(
                text,
                "| {} | {} | {} | {} |",
                work.name,
                pair.profiler.name,
                pair.base.name,
                cell(Spread::of(ratios), 3)
            )?;
        }
    }
    Ok(Section {
        text,
        figures: Vec::new(),
    })
}

impl Pair {
    /// Runs both once. The ratio of their processor times.
    fn measure(&self, work: &Work, tools: &Tools) -> Result<f64> {
        let data = data_file()?;
        let words = |profiler: &Profiler| -> Result<Vec<OsString>> {
            let pinned = ON_ONE_PROCESSOR.map(OsString::from).to_vec();
            Ok([profiler.words(tools, &data)?, pinned, work.under(&[])].concat())
        };
        let (profiled, base) = (words(self.profiler)?, words(self.base)?);
        let is_traced = self.profiler.is_heaptrace() && self.profiler.name != self.base.name;
        let mut first = start(&profiled)?;
        if is_traced {
            // It starts the program when it has set its probes.
            if let Err(error) = wait_for(&data) {
                first.kill().context("cannot end the tracer")?;
                first.wait().context("cannot wait for the tracer")?;
                return Err(error);
            }
        }
        let second = start(&base)?;
        // Both ends are waited for before an error of one is returned.
        let (first, second) = (cpu(first), cpu(second));
        let ratio = first? / second?;
        if is_traced {
            check_nothing_lost(&data)?;
        }
        Ok(ratio)
    }
}

fn start(words: &[OsString]) -> Result<Child> {
    let (program, arguments) = words.split_first().context("an empty command")?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let child = command.spawn();
    child.with_context(|| format!("cannot start {}", program.display()))
}

/// The processor time of the program, in nanoseconds.
fn cpu(child: Child) -> Result<f64> {
    let output = child
        .wait_with_output()
        .context("cannot wait for a program")?;
    if !output.status.success() {
        bail!("a program failed: {}", output.status);
    }
    let measured = Measured::read(&String::from_utf8_lossy(&output.stdout), None)?;
    measured.cpu_ns.context("no processor time was printed")
}

/// A run that lost events looks cheaper than it is.
fn check_nothing_lost(data: &Path) -> Result<()> {
    let lost = Tracing::of(data)?.lost;
    if lost > 0 {
        bail!("heaptrace lost {lost} events");
    }
    Ok(())
}

/// The top of the page.
pub(super) fn head(machine: &Machine, rounds: u32) -> String {
    format!(
        "# Together with an untraced program\n\n\
         Written by `cargo xtask bench --only together`; run it for your own machine.\n\n\
         {machine}\n\
         Each program of [profilers.md](profilers.md) that is no server runs with a profiler and, at the same time and on the same processor, without it. \
         The kernel gives each of them some milliseconds by turns, so a machine that becomes slower makes both slower. The first row of a \
         program, with nothing on both sides, shows how exact that is. The time is the program's processor time, user's and kernel's, from its first instruction to its end: \
         with the traps before heaptrace had moved it, all samples, and the stop of a few milliseconds at the move only as far as it takes processor time. heaptrace's own \
         processor time is not in it; two programs share the processor's caches, which makes samples dearer than they are alone. \
         All have a mean of 512 KiB, except for heaptrace with `--fast` alone, whose rate follows the load, as by default. A ratio is the median of {rounds} rounds, with the smallest and the largest in parentheses.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that one pair has nothing on both sides, and that each other one is a profiler that samples beside its own base.
    #[test]
    fn profilers_run_beside_their_bases() {
        let names: Vec<_> = pairs()
            .iter()
            .map(|it| (it.profiler.name, it.base.name))
            .collect();
        assert_eq!(
            names,
            [
                ("untraced", "untraced"),
                ("heaptrace --fast", "untraced"),
                ("heaptrace --fast --sample 512KiB", "untraced"),
                ("jemalloc's profiler", "jemalloc"),
                ("tcmalloc's profiler", "tcmalloc"),
            ]
        );
    }
}
