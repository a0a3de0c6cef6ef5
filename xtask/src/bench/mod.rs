//! `cargo xtask bench`: measures the cost of tracing on real programs, and writes docs/benchmarks.md or a page of its own.
//!
//! It must not know how heaptrace traces. It runs the release build from outside and reads the output of the
//! programs.

mod attached;
mod beside;
mod cell;
mod effort;
mod fast;
pub mod figure;
mod file;
mod growth;
mod jemalloc;
pub mod machine;
pub mod measured;
pub mod mode;
mod names;
mod pairs;
mod profilers;
pub mod programs;
mod reachable;
mod section;
mod serving;
pub mod stats;
mod stream;
mod targets;
mod together;
pub mod workload;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::{run, workspace};
use effort::Effort;
use figure::Figure;
use machine::Machine;
use mode::{BYSTANDER, EXACT, FAST, FLOOR, SAMPLED, UNTRACED};
use section::Section;

/// The page of results, below the repository's root.
const PAGE: &str = "docs/benchmarks.md";

/// The figures that later runs are compared with.
const STORED: &str = "docs/benchmarks.json";

/// Measure the cost of tracing.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The number of rounds in which each mode is measured.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The length of one measurement in seconds, for programs that run for a given time.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Measure only this part, and write no file unless it has a page of its own.
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Measure only programs whose names contain this text, and write no file.
    #[arg(value_name = "FILTER")]
    filter: Option<String>,
    /// Print the results and write no file.
    #[arg(long)]
    dry_run: bool,
    /// Write no file; fail if a ratio is worse than the stored one by more than the noise.
    #[arg(long)]
    compare: bool,
    /// Measure nothing; print how far the stored ratios are from the targets.
    #[arg(long)]
    targets: bool,
}

/// A part of the benchmarks.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Single operations, compared with empty probes.
    Pairs,
    /// Real programs.
    Programs,
    /// What `--fast` costs.
    Fast,
    /// Other tracers, on the same programs.
    Beside,
    /// `--fast` beside other heap profilers, which takes half an hour and is on a page of its own; left out unless it is named.
    Profilers,
    /// Programs with and without a sampling profiler at the same time, on one processor, on a page of their own; left out unless they are named.
    Together,
    /// A server while heaptrace is attached to it, and before, on a page of its own; left out unless it is named.
    Attached,
    /// Names, beside other symbolizers, on a page of their own; left out unless they are named.
    Names,
    /// The data file of a long run, the commands that read it, and the cost of options, on a page of their own; left out unless it is named.
    File,
    /// Searches for blocks that nothing points to, on a page of their own; left out unless they are named.
    Reachable,
    /// The throughput of the ring, and the cost of reading a large recording.
    Stream,
    /// The growth of costs.
    Growth,
}

impl Part {
    const ALL: [Self; 12] = [
        Self::Pairs,
        Self::Programs,
        Self::Fast,
        Self::Beside,
        Self::Profilers,
        Self::Together,
        Self::Attached,
        Self::Names,
        Self::File,
        Self::Reachable,
        Self::Stream,
        Self::Growth,
    ];

    /// Its own page, below the repository's root.
    fn page(self) -> Option<&'static str> {
        match self {
            Self::Profilers => Some("docs/profilers.md"),
            Self::Together => Some("docs/together.md"),
            Self::Attached => Some("docs/attached.md"),
            Self::Names => Some("docs/names.md"),
            Self::File => Some("docs/data-files.md"),
            Self::Reachable => Some("docs/reachability.md"),
            _ => None,
        }
    }

    /// Whether it is measured if only this part, or none, was named.
    fn is_wanted(self, only: Option<Self>) -> bool {
        only.map_or(self.page().is_none(), |only| only == self)
    }
}

/// Runs the task.
pub fn run(args: &Args) -> Result<ExitCode> {
    if args.targets {
        print!("{}", targets::section(&stored()?));
        return Ok(ExitCode::SUCCESS);
    }
    run::build_release(None)?;
    let machine = Machine::look()?;
    let effort = Effort {
        rounds: args.rounds,
        seconds: args.seconds,
        filter: args.filter.clone(),
    };
    let mut all = Section::default();
    for part in Part::ALL {
        if !part.is_wanted(args.only) {
            continue;
        }
        let section = match part {
            Part::Pairs => pairs::measure_all(&machine, &effort)?,
            Part::Programs => programs::measure_all(&effort)?,
            Part::Fast => fast::measure_all(&effort)?,
            Part::Beside => beside::measure_all(&effort)?,
            Part::Profilers => profilers::measure_all(&effort)?,
            Part::Together => together::measure_all(&effort)?,
            Part::Attached => attached::measure_all(&effort)?,
            Part::Names => names::measure_all(&effort)?,
            Part::File => file::measure_all(&effort)?,
            Part::Reachable => reachable::measure_all(&effort)?,
            Part::Stream => stream::measure_all(&machine, &effort)?,
            Part::Growth => growth::measure_all(&effort)?,
        };
        all.text.push_str(&section.text);
        all.figures.extend(section.figures);
    }
    if all.text.is_empty() {
        bail!("no measurement has this name");
    }
    let rounds = args.rounds;
    let head = match args.only {
        Some(Part::Profilers) => profilers::head(&machine, rounds),
        Some(Part::Together) => together::head(&machine, rounds),
        Some(Part::Attached) => attached::head(&machine, rounds),
        Some(Part::File) => file::head(&machine, rounds),
        Some(Part::Reachable) => reachable::head(&machine, rounds),
        Some(Part::Names) => names::head(&machine, rounds),
        _ => head(&machine, args) + &targets::section(&all.figures),
    };
    let page = head + &all.text;
    println!("\n{page}");
    let root = workspace::root();
    if args.compare {
        return compare(&all.figures);
    }
    if args.dry_run || args.filter.is_some() {
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(only) = args.only {
        if let Some(path) = only.page() {
            write(&root.join(path), &page)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    write(&root.join(PAGE), &page)?;
    write(&root.join(STORED), &figure::write(&all.figures)?)?;
    Ok(ExitCode::SUCCESS)
}

fn head(machine: &Machine, args: &Args) -> String {
    let Args {
        rounds, seconds, ..
    } = args;
    let mut text = format!(
        "# Benchmarks\n\n\
         Written by `cargo xtask bench`; run it for your own machine. `cargo xtask bench --compare` fails if a ratio is \
         worse than the one that is stored in `docs/benchmarks.json`.\n\n\
         {machine}\n\
         The modes are measured alternately, in {rounds} rounds. Programs that run for a given time run {seconds} s in each. A \
         time is the median of the rounds. A ratio is the median of the rounds' ratios. The smallest and the largest value are \
         in parentheses. The programs measure their times themselves, so the times exclude starting and attaching heaptrace.\n\n"
    );
    for mode in [UNTRACED, BYSTANDER, FLOOR, SAMPLED, FAST, EXACT] {
        text.push_str(&format!("- **{}**: {}\n", mode.name, mode.meaning));
    }
    text
}

/// Reads the stored figures.
fn stored() -> Result<Vec<Figure>> {
    let path = workspace::root().join(STORED);
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    figure::read(&text)
}

fn compare(figures: &[Figure]) -> Result<ExitCode> {
    let (worse, compared) = figure::worse(figures, &stored()?);
    if compared == 0 {
        bail!("{STORED} has none of the measured ratios");
    }
    for line in &worse {
        println!("worse: {line}");
    }
    println!("{compared} ratios compared, {} of them worse", worse.len());
    Ok(if worse.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    println!("Written to {}", path.display());
    Ok(())
}
