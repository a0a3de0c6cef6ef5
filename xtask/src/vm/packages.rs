//! Debian's archive, read with lists of our own: kernels of several releases, without a change to the system's sources.
//!
//! Part of `cargo xtask vm`. It must not know what is in a package.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::{apt, process};

/// Where the kernels are: 6.1 and 6.12 in the first three, newer ones in the last.
const SOURCES: [&str; 4] = [
    "debian bookworm",
    "debian-security bookworm-security",
    "debian bookworm-backports",
    "debian trixie-backports",
];

/// The emulator and what its file system is made of: each program and its package.
const TOOLS: [(&str, &str); 3] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("cpio", "cpio"),
];

/// How old lists may get.
const FRESH: Duration = Duration::from_secs(24 * 3600);

/// The archive, and the folder for what is known and taken of it.
pub(super) struct Archive {
    folder: PathBuf,
}

impl Archive {
    pub(super) fn new(folder: &Path) -> Result<Self> {
        for tool in ["apt-get", "apt-cache", "dpkg-deb"] {
            if process::find_program(tool).is_none() {
                bail!("the kernels come as Debian packages, and there is no {tool} here");
            }
        }
        let folder = folder.join("apt");
        fs::create_dir_all(folder.join("lists/partial"))?;
        fs::create_dir_all(folder.join("archives/partial"))?;
        let keys = "/usr/share/keyrings/debian-archive-keyring.gpg";
        let sources: String = SOURCES
            .iter()
            .filter_map(|source| source.split_once(' '))
            .map(|(part, suite)| {
                format!("deb [signed-by={keys}] http://deb.debian.org/{part} {suite} main\n")
            })
            .collect();
        fs::write(folder.join("sources.list"), sources)?;
        Ok(Self { folder })
    }

    /// Makes sure of the tools; from the backports where the release's own version is in the way of another package.
    pub(super) fn ensure_tools(&self) -> Result<()> {
        const PURPOSE: &str = "for emulated machines";
        let missing: Vec<&str> = TOOLS
            .iter()
            .filter(|(program, package)| {
                // The plain busybox needs libraries, which its machine has no reason to have.
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
        self.refresh()?;
        let mut options = self.options();
        options.extend(["-t".into(), backports.into()]);
        apt::install_with(&options, &missing).context("cannot install the tools either way")
    }

    /// Names of packages that begin so.
    pub(super) fn names(&self, prefix: &str) -> Result<Vec<String>> {
        self.refresh()?;
        let mut command = Command::new("apt-cache");
        command
            .args(self.options())
            .arg("pkgnames")
            .arg(prefix)
            .env("LC_ALL", "C");
        Ok(process::output(&mut command)?
            .lines()
            .map(str::to_owned)
            .collect())
    }

    /// Downloads a package and returns its path.
    pub(super) fn download(&self, package: &str) -> Result<PathBuf> {
        println!("Downloading {package}");
        let into = self.folder.join("packages").join(package);
        fs::create_dir_all(&into)?;
        let mut command = Command::new("apt-get");
        command
            .args(self.options())
            .args(["download", "-qq"])
            .arg(package)
            .current_dir(&into);
        process::run(&mut command)?;
        let file = fs::read_dir(&into)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.extension().is_some_and(|extension| extension == "deb"));
        file.with_context(|| format!("{package} is not in {}", into.display()))
    }

    fn refresh(&self) -> Result<()> {
        let stamp = self.folder.join("refreshed");
        let age = fs::metadata(&stamp).and_then(|data| Ok(data.modified()?.elapsed()));
        if matches!(age, Ok(Ok(age)) if age < FRESH) {
            return Ok(());
        }
        println!("Reading Debian's lists of packages");
        let mut command = Command::new("apt-get");
        command.args(self.options()).args(["update", "-qq"]);
        process::run(&mut command)?;
        Ok(fs::write(stamp, "")?)
    }

    /// What makes apt read these sources alone and write nowhere else.
    fn options(&self) -> Vec<OsString> {
        let setting = |name: &str, path: &str| {
            let mut word = OsString::from(format!("{name}="));
            word.push(self.folder.join(path));
            word
        };
        let settings = [
            setting("Dir::Etc::SourceList", "sources.list"),
            setting("Dir::State::Lists", "lists"),
            setting("Dir::Cache::Archives", "archives"),
            "Dir::Etc::SourceParts=-".into(),
            "Dir::Cache::PkgCache=".into(),
            "Dir::Cache::SrcPkgCache=".into(),
            "APT::Architecture=amd64".into(),
            // The folder may be one that apt's own user can't see.
            "APT::Sandbox::User=root".into(),
        ];
        settings
            .into_iter()
            .flat_map(|setting| ["-o".into(), setting])
            .collect()
    }
}

/// The suite of newer packages for the release that `/etc/os-release` names, if it is one of ours.
fn backports(os_release: &str) -> Option<String> {
    let codename = os_release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    let suite = format!("{}-backports", codename.trim_matches('"'));
    SOURCES
        .iter()
        .any(|source| source.ends_with(&format!(" {suite}")))
        .then_some(suite)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the backports are those of the running release, and none where the sources have none.
    #[test]
    fn backports_are_the_releases_own() {
        let release = "NAME=\"Debian GNU/Linux\"\nVERSION_CODENAME=bookworm\n";
        assert_eq!(backports(release).as_deref(), Some("bookworm-backports"));
        assert_eq!(backports("VERSION_CODENAME=noble\n"), None);
        assert_eq!(backports(""), None);
    }
}
