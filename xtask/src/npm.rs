//! Packages of npm that the tests use: installs the versions of a lock file into the target folder.
//!
//! It must not know the purpose of a package.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{apt, process, workspace};

/// The files that name the packages.
const NAMED_BY: [&str; 2] = ["package.json", "package-lock.json"];

/// Makes sure that the packages that `tests/npm` names are in `target/npm`. No script of a package runs.
pub fn ensure() -> Result<()> {
    let from = workspace::root().join("tests/npm");
    let to = workspace::target_dir().join("npm");
    if is_current(&from, &to) {
        return Ok(());
    }
    if process::find_program("npm").is_none() {
        apt::ensure(&["npm"], "for the tests")?;
    }
    fs::create_dir_all(&to).with_context(|| format!("cannot make {}", to.display()))?;
    for name in NAMED_BY {
        fs::copy(from.join(name), to.join(name)).with_context(|| format!("cannot copy {name}"))?;
    }
    println!(
        "Installing packages of npm for the tests into {}",
        to.display()
    );
    let mut npm = Command::new("npm");
    npm.args([
        "ci",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--prefer-offline",
    ]);
    process::run(npm.current_dir(&to))
}

/// Whether the packages of these files are installed. npm notes what it has installed last.
fn is_current(from: &Path, to: &Path) -> bool {
    let is_same = |name| {
        let (wanted, there) = (fs::read(from.join(name)), fs::read(to.join(name)));
        wanted.is_ok_and(|wanted| there.is_ok_and(|there| wanted == there))
    };
    to.join("node_modules/.package-lock.json").is_file() && NAMED_BY.into_iter().all(is_same)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that packages are installed again when a file that names them has changed, or when an installation was cut off.
    #[test]
    fn old_packages_are_not_current() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(&from).unwrap();
        fs::create_dir_all(to.join("node_modules")).unwrap();
        for name in NAMED_BY {
            fs::write(from.join(name), name).unwrap();
            fs::write(to.join(name), name).unwrap();
        }
        assert!(!is_current(&from, &to));
        fs::write(to.join("node_modules/.package-lock.json"), "{}").unwrap();
        assert!(is_current(&from, &to));
        fs::write(from.join("package-lock.json"), "another version").unwrap();
        assert!(!is_current(&from, &to));
    }

    /// Check that the lock file names no registry, so that each machine uses its own.
    #[test]
    fn the_lock_file_names_no_registry() {
        let lock = workspace::root().join("tests/npm/package-lock.json");
        let lock = fs::read_to_string(lock).unwrap();
        assert!(lock.contains("node_modules/speedscope"));
        assert!(
            !lock.contains("\"resolved\"") && !lock.contains("registry."),
            "{lock}"
        );
    }
}
