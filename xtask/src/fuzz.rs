//! `cargo xtask fuzz`: files that were made to harm the builder of unwind tables, for as long as one likes.
//!
//! It must not know what is checked: it runs a test of `tests/` for longer than that runs by itself.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;

use crate::{cargo, process};

/// Look for files that harm the builder of unwind tables.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// How long to look.
    #[arg(long, default_value_t = 60, value_name = "N")]
    seconds: u64,
    /// Begin with this seed, as a failure named it, instead of a new one.
    #[arg(long)]
    seed: Option<u64>,
}

/// Run the task.
pub fn run(args: &Args) -> Result<ExitCode> {
    let new = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(1, |since| since.as_nanos() as u64)
    };
    let seed = args.seed.unwrap_or_else(new);
    let mut command = cargo::host("test");
    command.args([
        "--package",
        "heaptrace-tests",
        "--test",
        "fuzz",
        "--",
        "--nocapture",
    ]);
    command.env("HEAPTRACE_FUZZ_SECONDS", args.seconds.to_string());
    command.env("HEAPTRACE_FUZZ_SEED", seed.to_string());
    process::run(&mut command)?;
    Ok(ExitCode::SUCCESS)
}
