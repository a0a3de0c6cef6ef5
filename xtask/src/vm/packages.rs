//! Reads Debian's archive with its own package lists, for kernels of several releases. The system's sources
//! stay unchanged.
//!
//! Part of `cargo xtask vm`. It must not know the content of a package.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::{apt, process};

/// The sources of the kernels: 6.1 and 6.12 are in the first three, newer ones in the last.
const SOURCES: [&str; 4] = [
    "debian bookworm",
    "debian-security bookworm-security",
    "debian bookworm-backports",
    "debian trixie-backports",
];

/// The emulator and the tools for its file system: each program and its package.
const TOOLS: [(&str, &str); 3] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("cpio", "cpio"),
];

/// The age at which package lists are refreshed.
const FRESH: Duration = Duration::from_secs(24 * 3600);

/// The archive, and the folder for its lists and downloads.
pub(super) struct Archive {
    folder: PathBuf,
}

impl Archive {
    pub(super) fn new(folder: &Path) -> Result<Self> {
        for tool in ["apt-get", "apt-cache", "dpkg-deb"] {
            if process::find_program(tool).is_none() {
                bail!("cannot get kernels, which are Debian packages: {tool} is not installed");
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
        self.refresh()?;
        let mut options = self.options();
        options.extend(["-t".into(), backports.into()]);
        apt::install_with(&options, &missing).context("cannot install the tools either way")
    }

    /// The names of packages with this prefix.
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

    /// Downloads a package, and returns its path.
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

    /// Options that make apt read only these sources and write only to the folder.
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
            // apt's own user may have no access to the folder.
            "APT::Sandbox::User=root".into(),
        ];
        settings
            .into_iter()
            .flat_map(|setting| ["-o".into(), setting])
            .collect()
    }
}

/// The backports suite of the release in `/etc/os-release`, if it is one of the sources.
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

    /// Check that the backports are those of the running release, and that other releases have none.
    #[test]
    fn backports_are_the_releases_own() {
        let release = "NAME=\"Debian GNU/Linux\"\nVERSION_CODENAME=bookworm\n";
        assert_eq!(backports(release).as_deref(), Some("bookworm-backports"));
        assert_eq!(backports("VERSION_CODENAME=noble\n"), None);
        assert_eq!(backports(""), None);
    }
}
