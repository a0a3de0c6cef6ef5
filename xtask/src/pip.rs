//! Packages of Python's package index, each in a folder of its own.
//!
//! It must not know the purpose of a package.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::process;

/// Installs a package, without those that it names, into a folder.
pub fn install(package: &str, into: &Path) -> Result<()> {
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"]);
    process::run(command.arg(into).arg(package))
}
