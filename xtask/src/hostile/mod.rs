//! `cargo xtask hostile`: runs heaptrace, as root, on programs and files that are made to harm it.
//!
//! It must not know how heaptrace defends itself, and checks only the results. Harm is: heaptrace dies,
//! hangs, uses too much memory, executes or opens a forbidden file, ends with a wrong status, or loses events
//! without reporting it.

mod cases;
mod data;
mod dwarf;
mod elf;
mod ended;
mod files;
mod languages;
mod programs;
mod suite;
mod surroundings;
mod table;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::{apt, process, run};
use cases::CASES;
use suite::Suite;
use table::Line;

/// Run the hostile cases.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Run only the cases whose names contain one of these; the other rows of docs/hostile.md stay.
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
}

/// Runs the task.
pub fn run(args: &Args) -> Result<ExitCode> {
    if !process::is_root() {
        bail!("this task makes devices and mounts: run it as root, on a machine that you can lose");
    }
    apt::ensure_cc("for the hostile programs")?;
    run::build_release(None)?;
    let suite = Suite::build()?;
    let mut lines = Vec::new();
    for case in CASES {
        let is_wanted = |filter: &String| case.name.contains(filter.as_str());
        if args.filters.is_empty() || args.filters.iter().any(is_wanted) {
            let line = Line::of(case, &suite);
            println!("{line}");
            lines.push(line);
        }
    }
    if lines.is_empty() {
        bail!("no case has such a name");
    }
    let harmful: Vec<&Line> = lines.iter().filter(|line| line.is_harmful()).collect();
    println!("\n{} cases, {} harmful", lines.len(), harmful.len());
    for line in &harmful {
        println!("    {line}");
    }
    table::write(&lines)?;
    Ok(if harmful.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
