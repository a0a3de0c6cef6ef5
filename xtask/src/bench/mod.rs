//! `cargo xtask bench`: what tracing costs, measured on real programs in turns, written to docs/benchmarks.md.
//!
//! It must not know how heaptrace traces: it runs the release build from outside and reads what the programs print.

mod beside;
mod cell;
mod effort;
pub mod figure;
mod growth;
pub mod machine;
pub mod measured;
pub mod mode;
mod pairs;
pub mod programs;
mod section;
pub mod stats;
mod stream;
mod targets;
pub mod workload;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::{run, workspace};
use effort::Effort;
use figure::Figure;
use machine::Machine;
use mode::{BYSTANDER, EXACT, FLOOR, SAMPLED, UNTRACED};
use section::Section;

/// Where the results are written to, below the repository's root.
const PAGE: &str = "docs/benchmarks.md";

/// Where the figures are kept that later runs are compared with.
const KEPT: &str = "docs/benchmarks.json";

/// Measure what tracing costs.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// How often each mode is measured.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long one measurement takes, of programs that run for a given time.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Measure this part alone, and write no file.
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Only what has a name that contains this; writes no file.
    #[arg(value_name = "FILTER")]
    filter: Option<String>,
    /// Print the results and write no file.
    #[arg(long)]
    dry_run: bool,
    /// Write no file; fail where a ratio is worse than the kept one by more than the noise.
    #[arg(long)]
    compare: bool,
    /// Measure nothing; print how far the kept ratios are from the targets.
    #[arg(long)]
    targets: bool,
}

/// A part of what is measured.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Single operations, beside the floor.
    Pairs,
    /// Programs that people run.
    Programs,
    /// Other tracers, on the same programs.
    Beside,
    /// How much comes through from the kernel, and how a large recording is read.
    Stream,
    /// How cost grows.
    Growth,
}

impl Part {
    const ALL: [Self; 5] = [
        Self::Pairs,
        Self::Programs,
        Self::Beside,
        Self::Stream,
        Self::Growth,
    ];
}

/// Run the task.
pub fn run(args: &Args) -> Result<ExitCode> {
    if args.targets {
        print!("{}", targets::section(&kept()?));
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
        if args.only.is_some_and(|only| only != part) {
            continue;
        }
        let section = match part {
            Part::Pairs => pairs::measure_all(&machine, &effort)?,
            Part::Programs => programs::measure_all(&effort)?,
            Part::Beside => beside::measure_all(&effort)?,
            Part::Stream => stream::measure_all(&machine, &effort)?,
            Part::Growth => growth::measure_all(&effort)?,
        };
        all.text.push_str(&section.text);
        all.figures.extend(section.figures);
    }
    if all.text.is_empty() {
        bail!("nothing has such a name");
    }
    let page = format!(
        "{}{}{}",
        head(&machine, args),
        targets::section(&all.figures),
        all.text
    );
    println!("\n{page}");
    let root = workspace::root();
    if args.compare {
        return compare(&all.figures);
    }
    if args.dry_run || args.only.is_some() || args.filter.is_some() {
        return Ok(ExitCode::SUCCESS);
    }
    write(&root.join(PAGE), &page)?;
    write(&root.join(KEPT), &figure::write(&all.figures)?)?;
    Ok(ExitCode::SUCCESS)
}

fn head(machine: &Machine, args: &Args) -> String {
    let Args {
        rounds, seconds, ..
    } = args;
    let mut text = format!(
        "# Benchmarks\n\n\
         Written by `cargo xtask bench`; run it for your own machine. `cargo xtask bench --compare` fails where a ratio has \
         become worse than the one that is kept beside this page.\n\n\
         {machine}\n\
         What is compared is measured in turns, {rounds} rounds, of {seconds} s each where a program runs for a given time. A \
         time is the median of the rounds, a ratio the median of the rounds' own ratios; smallest and largest in parentheses. \
         The programs take their times themselves, so starting heaptrace and attaching it is not in them.\n\n"
    );
    for mode in [UNTRACED, BYSTANDER, FLOOR, SAMPLED, EXACT] {
        text.push_str(&format!("- **{}**: {}\n", mode.name, mode.meaning));
    }
    text
}

/// The figures that are kept.
fn kept() -> Result<Vec<Figure>> {
    let path = workspace::root().join(KEPT);
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    figure::read(&text)
}

fn compare(figures: &[Figure]) -> Result<ExitCode> {
    let (worse, compared) = figure::worse(figures, &kept()?);
    if compared == 0 {
        bail!("nothing that was measured is in {KEPT}");
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
