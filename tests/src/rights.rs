//! Requirements of tests: root's rights, programs, users.
//!
//! Part of the harness. An unmet requirement is an error, never a skipped test.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::child::run;

/// The id of the user `nobody`, which owns nothing.
pub const NOBODY: u32 = 65534;

/// Fails unless the test runs as root.
pub fn require_root() -> Result<()> {
    // SAFETY: geteuid has no arguments and can't fail.
    let user = unsafe { libc::geteuid() };
    ensure!(
        user == 0,
        "this test traces, which needs root, and runs as user {user}: use `cargo xtask test`"
    );
    Ok(())
}

/// Finds an installed program, or fails with the package to install.
pub fn require_tool(name: &str, debian_package: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").context("PATH is not set")?;
    for folder in std::env::split_paths(&path) {
        let candidate = folder.join(name);
        if candidate.is_file() {
            return Ok(candidate);
        }
    }
    bail!("this test needs {name}: `apt-get install {debian_package}`, or use `cargo xtask test`")
}

/// Copies a program to a folder where the user `nobody` can run it. The workspace may be in root's home.
pub fn open_to_nobody(folder: &Path, program: &Path) -> Result<PathBuf> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    let name = program.file_name().context("a program without a name")?;
    let copy = folder.join(name);
    // Another process makes the copy. If this one did, a child that another test forks meanwhile would hold the
    // copy open for writing, and the kernel would refuse to run it.
    run(Command::new("cp").arg(program).arg(&copy))?.success()?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
    Ok(copy)
}
