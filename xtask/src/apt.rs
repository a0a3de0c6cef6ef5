//! Debian packages: looks up installed packages, and installs missing ones, always with a message.
//!
//! Shared by the tasks that need more than Rust. It must not know the purpose of a package; callers pass it.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::process;

/// Makes sure that the packages are installed. `purpose` is shown to the user.
///
/// On a system without apt it only names the packages, and assumes that they are installed in another way.
pub fn ensure(packages: &[&str], purpose: &str) -> Result<()> {
    if !is_here(packages, purpose) {
        return Ok(());
    }
    let missing: Vec<&str> = packages
        .iter()
        .copied()
        .filter(|package| !is_installed(package))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    println!(
        "Installing Debian packages {purpose}: {}",
        missing.join(" ")
    );
    let mut updated = false;
    if !missing.iter().all(|package| is_known(package)) {
        update()?;
        updated = true;
    }
    match install(&missing) {
        // Old lists can name files that the archive no longer has.
        Err(_) if !updated => {
            update()?;
            install(&missing)
        }
        result => result,
    }
    .with_context(|| format!("cannot install {}", missing.join(" ")))
}

/// Installs the newest versions of the packages, even if older ones are installed.
///
/// For packages that change often: old lists may name an outdated version.
pub fn ensure_newest(packages: &[&str], purpose: &str) -> Result<()> {
    if !is_here(packages, purpose) {
        return Ok(());
    }
    println!(
        "Installing Debian packages {purpose}: {}",
        packages.join(" ")
    );
    update()?;
    install(packages).with_context(|| format!("cannot install {}", packages.join(" ")))
}

/// Downloads packages and unpacks them into a folder, without installing them. What was downloaded before is kept.
pub fn unpack(packages: &[&str], folder: &Path) -> Result<()> {
    if packages.is_empty() || folder.exists() {
        return Ok(());
    }
    let archives = folder.with_extension("archives");
    fs::create_dir_all(&archives).with_context(|| format!("cannot make {}", archives.display()))?;
    println!("Downloading Debian packages: {}", packages.join(" "));
    if !packages.iter().all(|package| is_known(package)) {
        update()?;
    }
    let mut download = Command::new("apt-get");
    download.args(["-qq", "download"]).args(packages);
    process::run(download.current_dir(&archives))?;
    // Under another name until it is complete.
    let partial = folder.with_extension("partial");
    for archive in fs::read_dir(&archives)? {
        let mut unpack = Command::new("dpkg-deb");
        process::run(unpack.arg("-x").arg(archive?.path()).arg(&partial))?;
    }
    fs::rename(&partial, folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// Whether the system has apt; if not, it prints the needed packages.
fn is_here(packages: &[&str], purpose: &str) -> bool {
    let here = process::find_program("apt-get").is_some();
    if !here {
        println!(
            "No apt-get on this system. Needed {purpose}, under the names that your system uses: {}",
            packages.join(" ")
        );
    }
    here
}

/// Whether dpkg has the package installed.
pub fn is_installed(package: &str) -> bool {
    query(
        "dpkg-query",
        &["-W", "-f", "${db:Status-Status}\n", package],
    )
    .is_some_and(|text| text.lines().any(|line| line == "installed"))
}

/// The version of an installed package.
pub fn version(package: &str) -> Option<String> {
    let text = query("dpkg-query", &["-W", "-f", "${Version}\n", package])?;
    let version = text.lines().next().map(str::trim)?;
    (!version.is_empty()).then(|| version.to_owned())
}

/// Whether apt's lists have an installable version of the package.
pub fn is_known(package: &str) -> bool {
    query("apt-cache", &["policy", package]).is_some_and(|text| has_candidate(&text))
}

fn has_candidate(policy: &str) -> bool {
    policy
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Candidate:"))
        .any(|version| version.trim() != "(none)")
}

fn update() -> Result<()> {
    process::run(apt_get()?.arg("update").arg("-qq"))
}

fn install(packages: &[&str]) -> Result<()> {
    install_with(&[], packages)
}

/// Installs the packages with additional options for apt-get.
pub fn install_with(options: &[OsString], packages: &[&str]) -> Result<()> {
    // --no-remove: if a package conflicts, only the user may decide to remove it.
    let mut command = apt_get()?;
    command.args(options).args([
        "install",
        "-y",
        "-qq",
        "--no-remove",
        "--no-install-recommends",
    ]);
    process::run(command.args(packages))
}

fn apt_get() -> Result<Command> {
    let mut command = process::as_root(
        "apt-get",
        &[("DEBIAN_FRONTEND", OsString::from("noninteractive"))],
    )?;
    command.args(["-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Use-Pty=0"]);
    command.stdin(Stdio::null());
    Ok(command)
}

/// The output of dpkg or apt, in English in every locale.
fn query(program: &str, args: &[&str]) -> Option<String> {
    process::query(Command::new(program).args(args).env("LC_ALL", "C"))
}

/// Makes sure that a C compiler is installed.
pub fn ensure_cc(purpose: &str) -> Result<()> {
    if process::find_program("cc").is_some() {
        return Ok(());
    }
    ensure(&["gcc", "libc6-dev"], purpose)?;
    if process::find_program("cc").is_none() {
        bail!("no C compiler: `cc` is not in PATH");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that apt's three answers are distinguished: a version, no installable version, and an unknown
    /// name.
    #[test]
    fn candidates_are_read() {
        assert!(has_candidate(
            "jq:\n  Installed: (none)\n  Candidate: 1.6-2.1\n  Version table:\n"
        ));
        assert!(!has_candidate(
            "rustc-web:\n  Installed: (none)\n  Candidate: (none)\n  Version table:\n"
        ));
        assert!(!has_candidate(""));
    }
}
