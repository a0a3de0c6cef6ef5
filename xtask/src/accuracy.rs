//! `cargo xtask accuracy`: measures the error of samples and how often intervals hold, and writes docs/accuracy.md.
//! Fails if intervals hold too rarely, or if the fast path draws too few or too many samples.
//!
//! It runs the tests that compare samples with the truth, and must not know how they do it.

use std::fs;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use crate::test_result::Counts;
use crate::{cargo, process, run, test, workspace};

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
    let mut page = fs::OpenOptions::new().append(true).open(&path)?;
    page.write_all(fast_table()?.as_bytes())
        .context("cannot write the page")?;
    print!(
        "{}",
        fs::read_to_string(&path).context("cannot read the page")?
    );
    println!("Written to {}", path.display());
    Ok(ExitCode::SUCCESS)
}

/// Traces processes on the fast path, as root, and returns the table of their samples.
fn fast_table() -> Result<String> {
    run::build_release(None)?;
    let file = workspace::target_dir().join("xtask/fast-accuracy.md");
    let variable = ("HEAPTRACE_FAST_ACCURACY_TABLE", file.clone().into());
    let suites = ["fast_accuracy".to_owned()];
    test::trace(&suites, &[], &[variable], &mut Counts::default())?;
    fs::read_to_string(&file).with_context(|| format!("no table in {}", file.display()))
}
