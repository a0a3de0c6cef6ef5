//! Paths: the workspace, its target folder, and the heaptrace binary under test.
//!
//! Part of the harness. It builds the binary if none is named.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, bail, ensure};

/// The root of the workspace.
pub fn workspace() -> &'static Path {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests)
}

/// The profile that this crate was built with. heaptrace is built with the same one.
fn profile() -> &'static str {
    if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    }
}

/// Cargo's target folder.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || workspace().join("target"),
        |folder| workspace().join(folder),
    )
}

/// The heaptrace binary: the one that `HEAPTRACE_BIN` names, or else one that is built now.
pub fn heaptrace() -> Result<&'static Path> {
    static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match BINARY.get_or_init(|| find_or_build().map_err(|error| format!("{error:#}"))) {
        Ok(path) => Ok(path),
        Err(message) => bail!("no heaptrace binary to test: {message}"),
    }
}

fn find_or_build() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("HEAPTRACE_BIN") {
        let path = PathBuf::from(named);
        ensure!(
            path.is_file(),
            "HEAPTRACE_BIN names {}, which is not there",
            path.display()
        );
        return Ok(path.canonicalize()?);
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(workspace())
        .args(["build", "--quiet", "--package", "heaptrace"]);
    if profile() == "release" {
        cargo.arg("--release");
    }
    let status = cargo.status().context("cannot run cargo")?;
    ensure!(status.success(), "cargo build of heaptrace failed");
    let path = target().join(profile()).join("heaptrace");
    ensure!(
        path.is_file(),
        "cargo built no {}; set HEAPTRACE_BIN if it is elsewhere",
        path.display()
    );
    Ok(path)
}
