//! Builds a jemalloc that can profile. Debian's can't.
//!
//! Part of bench. The source is that of the crate `tikv-jemalloc-sys`, which a fixture of the tests has as a dependency.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{apt, cargo, process, workspace};

/// The workspace of the fixture that depends on the crate.
const MANIFEST: &str = "tests/fixtures/crates/Cargo.toml";

const CRATE: &str = "tikv-jemalloc-sys";

/// The path of the library. It is built once.
pub(super) fn library() -> Result<PathBuf> {
    let folder = workspace::target_dir().join("xtask/jemalloc");
    let library = folder.join("lib/libjemalloc.so.2");
    if library.exists() {
        return Ok(library);
    }
    apt::ensure_cc("for building jemalloc")?;
    apt::ensure(&["make"], "for building jemalloc")?;
    println!("Building a jemalloc that can profile");
    let source = source()?;
    let _ = fs::remove_dir_all(&folder);
    copy(&source.join("jemalloc"), &folder)?;
    // The crate has what `autoconf` would make in a folder of its own.
    copy(&source.join("configure"), &folder)?;
    let mut configure = Command::new("sh");
    configure.args([
        "configure",
        "--enable-prof",
        "--disable-cxx",
        "--disable-doc",
        "--with-jemalloc-prefix=",
    ]);
    process::output(configure.current_dir(&folder))?;
    let mut make = Command::new("make");
    process::output(make.args(["-j2", "build_lib_shared"]).current_dir(&folder))?;
    Ok(library)
}

/// The folder of the crate, which cargo downloads if it is not there.
fn source() -> Result<PathBuf> {
    let mut command = cargo::host("metadata");
    command.args([
        "--format-version",
        "1",
        "--locked",
        "--manifest-path",
        MANIFEST,
    ]);
    let metadata: Value = serde_json::from_str(&process::output(&mut command)?)
        .context("the output of cargo metadata is not JSON")?;
    let packages = metadata["packages"].as_array();
    let package = packages.and_then(|all| all.iter().find(|it| it["name"] == CRATE));
    let manifest = package.and_then(|it| it["manifest_path"].as_str());
    let manifest = manifest.with_context(|| format!("{MANIFEST} has no {CRATE}"))?;
    let folder = Path::new(manifest).parent();
    Ok(folder.context("a manifest without a folder")?.to_owned())
}

/// Copies the content of a folder into another one.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    process::run(Command::new("cp").arg("-r").arg(from.join(".")).arg(to))
}
