//! `cargo xtask hostile`: programs and files that were made to harm heaptrace, each run for real, as root.
//!
//! It must not know how heaptrace defends itself: it looks at what comes out. Harmful is an agent that dies, hangs, takes
//! more memory than it may, runs or opens what it must not, ends with a wrong status, or loses something silently.

mod cases;
mod data;
mod elf;
mod ended;
mod files;
mod programs;
mod surroundings;
mod table;
mod zoo;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::{apt, process, run};
use cases::CASES;
use table::Line;
use zoo::Zoo;

/// Run the zoo.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Run only the cases whose names contain one of these; the others' rows in docs/hostile.md stay.
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
}

/// Run the task.
pub fn run(args: &Args) -> Result<ExitCode> {
    if !process::is_root() {
        bail!("the zoo makes devices and mounts: run it as root, on a machine of your own");
    }
    apt::ensure_cc("for the hostile programs")?;
    run::build_release(None)?;
    let zoo = Zoo::build()?;
    let mut lines = Vec::new();
    for case in CASES {
        let is_wanted = |filter: &String| case.name.contains(filter.as_str());
        if args.filters.is_empty() || args.filters.iter().any(is_wanted) {
            let line = Line::of(case, &zoo);
            println!("{line}");
            lines.push(line);
        }
    }
    if lines.is_empty() {
        bail!("there is no such case");
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
