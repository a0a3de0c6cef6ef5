//! Gets kernels of several releases from Debian's archive, and the tools for emulated machines.
//!
//! Part of `cargo xtask vm`. It must not know the content of a package.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use heaptrace_tests::Archive;

use crate::{apt, process};

/// The suites of the kernels: 6.1 and 6.12 are in the first three, newer ones in the last.
const SUITES: [&str; 4] = [
    "bookworm",
    "bookworm-security",
    "bookworm-backports",
    "trixie-backports",
];

/// The emulator and the tools for its file system: each program and its package.
const TOOLS: [(&str, &str); 3] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("cpio", "cpio"),
];

/// The archive of the kernels.
pub(super) struct Kernels {
    archive: Archive,
}

impl Kernels {
    pub(super) fn new(folder: &Path) -> Result<Self> {
        for tool in ["apt-get", "apt-cache", "dpkg-deb"] {
            if process::find_program(tool).is_none() {
                bail!("cannot get kernels, which are Debian packages: {tool} is not installed");
            }
        }
        let archive = Archive::new(&folder.join("apt"), &SUITES)?;
        Ok(Self { archive })
    }

    /// Installs missing tools. If a release's own version conflicts with another package, it uses the
    /// backports.
    pub(super) fn ensure_tools(&self) -> Result<()> {
        const PURPOSE: &str = "for emulated machines";
        let missing: Vec<&str> = TOOLS
            .iter()
            .filter(|(program, package)| {
                // The plain busybox needs libraries, which the machine does not have.
                process::find_program(program).is_none()
                    || *program == "busybox" && !apt::is_installed(package)
            })
            .map(|(_, package)| *package)
            .collect();
        let Err(error) = apt::ensure(&missing, PURPOSE) else {
            return Ok(());
        };
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let Some(backports) = backports(&release) else {
            return Err(error);
        };
        println!("Trying again with the packages of {backports}");
        self.archive.refresh()?;
        let mut options = self.archive.options();
        options.extend(["-t".into(), backports.into()]);
        apt::install_with(&options, &missing).context("cannot install the tools either way")
    }

    /// The names of packages with this prefix.
    pub(super) fn names(&self, prefix: &str) -> Result<Vec<String>> {
        self.archive.names(prefix)
    }

    /// Downloads a package, and returns its path.
    pub(super) fn download(&self, package: &str) -> Result<PathBuf> {
        self.archive.download(package, None)
    }
}

/// The backports suite of the release in `/etc/os-release`, if it is one of the sources.
fn backports(os_release: &str) -> Option<String> {
    let codename = os_release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    let suite = format!("{}-backports", codename.trim_matches('"'));
    SUITES.contains(&suite.as_str()).then_some(suite)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the backports are those of the running release, and that other releases have none.
    #[test]
    fn backports_are_the_releases_own() {
        let release = "NAME=\"Debian GNU/Linux\"\nVERSION_CODENAME=bookworm\n";
        assert_eq!(backports(release).as_deref(), Some("bookworm-backports"));
        assert_eq!(backports("VERSION_CODENAME=noble\n"), None);
        assert_eq!(backports(""), None);
    }
}
