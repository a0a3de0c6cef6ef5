//! `cargo xtask types`: measures how far the types of blocks are right, what share of real programs' blocks has one, and what finding them costs; writes
//! docs/types.md.
//!
//! It runs the release build from outside, and must not know how it finds a type.

mod archive;
mod builds;
mod calls;
mod cost;
mod page;
mod programs;
mod sources;

use std::process::ExitCode;

use anyhow::Result;

use crate::run;
use page::Section;

/// Measure the types of blocks, and write sections of docs/types.md.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Only compare builds whose rows contain this text; may be given several times. The other rows stay.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["cost", "programs"])]
    only: Vec<String>,
    /// Measure what finding the types of 1,000 calls costs, instead.
    #[arg(long)]
    cost: bool,
    /// Record real programs, and say which share of their bytes has a type, instead.
    #[arg(long)]
    programs: bool,
}

/// Runs the task.
pub fn run(args: &Args) -> Result<ExitCode> {
    run::build_release(None)?;
    if args.cost {
        page::replace(Section::Cost, |_| cost::measure())?;
    }
    if args.programs {
        page::replace(Section::Programs, |_| programs::measure())?;
    }
    if !args.cost && !args.programs {
        page::replace(Section::Builds, |old| builds::compare(&args.only, old))?;
    }
    Ok(ExitCode::SUCCESS)
}
