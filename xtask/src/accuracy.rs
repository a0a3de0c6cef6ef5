//! `cargo xtask accuracy`: measures the error of samples and how often intervals hold, and writes docs/accuracy.md.
//! Fails if intervals hold too rarely.
//!
//! It runs the tests that compare samples with the truth, and must not know how they do it.

use std::fs;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use crate::{cargo, process, workspace};

/// The page of results, below the repository's root.
const PAGE: &str = "docs/accuracy.md";

/// Measure the error of samples and how often intervals hold. Takes some minutes.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Draw new random samples.
    #[arg(long)]
    fresh: bool,
}

/// Runs the task.
pub fn run(args: &Args) -> Result<ExitCode> {
    let path = workspace::root().join(PAGE);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }
    let mut command = cargo::host("test");
    command
        .args(["--package", "heaptrace", "--test", "accuracy"])
        .env("HEAPTRACE_ACCURACY_TABLE", &path);
    if args.fresh {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64;
        println!("Seed: {now}");
        command.env("HEAPTRACE_ACCURACY_SEED", now.to_string());
    }
    process::run(&mut command)?;
    print!(
        "{}",
        fs::read_to_string(&path).context("cannot read the page")?
    );
    println!("Written to {}", path.display());
    Ok(ExitCode::SUCCESS)
}
