//! `cargo xtask types`: compares the types of blocks with those that programs say, for all builds that this machine has compilers for, and writes
//! docs/types.md. Fails if too many are wrong.
//!
//! It runs the tests that compare, and must not know how they do it.

use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::test_result::Counts;
use crate::{run, test, workspace};

/// The page of results, below the repository's root.
const PAGE: &str = "docs/types.md";

/// The line above the table.
const ABOVE: &str = "<!-- Written by `cargo xtask types`: -->\n\n";

/// Compare the types of blocks with those that programs say, and write the table of docs/types.md.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {}

/// Runs the task.
pub fn run(_: &Args) -> Result<ExitCode> {
    run::build_release(None)?;
    let file = workspace::target_dir().join("xtask/types.md");
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }
    let variable = ("HEAPTRACE_TYPES_TABLE", file.clone().into());
    let suites = ["types".to_owned()];
    test::trace(&suites, &[], Some(variable), &mut Counts::default())?;
    let table =
        fs::read_to_string(&file).with_context(|| format!("no table in {}", file.display()))?;
    let path = workspace::root().join(PAGE);
    let page =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let (text, _) = page
        .split_once(ABOVE)
        .with_context(|| format!("{PAGE} has no line {}", ABOVE.trim()))?;
    fs::write(&path, format!("{text}{ABOVE}{table}")).context("cannot write the page")?;
    print!("{table}");
    println!("Written to {}", path.display());
    Ok(ExitCode::SUCCESS)
}
