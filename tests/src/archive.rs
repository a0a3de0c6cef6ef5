//! Reads Debian's archive with package lists of its own, for packages of several releases. The system's sources stay
//! unchanged, and nothing is installed.
//!
//! Part of the harness; `cargo xtask vm` uses it, too. It must not know the content of a package.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

/// The age at which package lists are refreshed.
const FRESH: Duration = Duration::from_secs(24 * 3600);

/// The keys of all releases.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The archive, and the folder for its lists and downloads.
pub struct Archive {
    folder: PathBuf,
}

impl Archive {
    /// An archive with these suites, such as `trixie` and `trixie-security`, from the mirrors that the system's own apt uses.
    pub fn new(folder: &Path, suites: &[&str]) -> Result<Self> {
        fs::create_dir_all(folder.join("lists/partial"))?;
        fs::create_dir_all(folder.join("archives/partial"))?;
        let mirrors = mirrors()?;
        let mut sources = String::new();
        for suite in suites {
            let mirror = mirror(&mirrors, suite.ends_with("-security"))
                .with_context(|| format!("apt has no mirror of Debian for {suite}"))?;
            sources.push_str(&format!("deb [signed-by={KEYS}] {mirror} {suite} main\n"));
        }
        let file = folder.join("sources.list");
        if fs::read_to_string(&file).ok().as_deref() != Some(&sources) {
            let _ = fs::remove_file(folder.join("refreshed"));
            fs::write(file, sources)?;
        }
        Ok(Self {
            folder: folder.to_owned(),
        })
    }

    /// The names of packages with this prefix.
    pub fn names(&self, prefix: &str) -> Result<Vec<String>> {
        self.refresh()?;
        let mut command = Command::new("apt-cache");
        command.args(self.options()).arg("pkgnames").arg(prefix);
        Ok(output(&mut command)?.lines().map(str::to_owned).collect())
    }

    /// Downloads a package, in the version of this suite or else the newest, and returns its path.
    pub fn download(&self, package: &str, suite: Option<&str>) -> Result<PathBuf> {
        self.refresh()?;
        let name = suite.map_or_else(|| package.to_owned(), |it| format!("{package}/{it}"));
        println!("Downloading {name}");
        let into = self.folder.join("packages").join(&name);
        fs::create_dir_all(&into)?;
        let mut command = Command::new("apt-get");
        command.args(self.options()).args(["download", "-qq"]);
        output(command.arg(&name).current_dir(&into))?;
        let file = fs::read_dir(&into)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.extension().is_some_and(|extension| extension == "deb"));
        file.with_context(|| format!("{name} is not in {}", into.display()))
    }

    /// Reads the lists of packages, unless they are fresh.
    pub fn refresh(&self) -> Result<()> {
        let stamp = self.folder.join("refreshed");
        let age = fs::metadata(&stamp).and_then(|data| Ok(data.modified()?.elapsed()));
        if matches!(age, Ok(Ok(age)) if age < FRESH) {
            return Ok(());
        }
        println!("Reading Debian's lists of packages");
        let mut command = Command::new("apt-get");
        output(command.args(self.options()).args(["update", "-qq"]))?;
        Ok(fs::write(stamp, "")?)
    }

    /// Options that make apt read only these sources and write only to the folder.
    pub fn options(&self) -> Vec<OsString> {
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
            // Only the lists of packages, without descriptions in other languages and metadata for shops.
            "Acquire::Languages=none".into(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".into(),
            // apt's own user may have no access to the folder.
            "APT::Sandbox::User=root".into(),
        ];
        settings
            .into_iter()
            .flat_map(|setting| ["-o".into(), setting])
            .collect()
    }
}

/// Unpacks a package into a folder.
pub fn unpack(package: &Path, folder: &Path) -> Result<()> {
    output(Command::new("dpkg-deb").arg("-x").arg(package).arg(folder)).map(drop)
}

/// What the system's apt reads: a line per index, with its origin, its suite, and the address of its mirror.
fn mirrors() -> Result<String> {
    let format = "$(ORIGIN) $(CODENAME) $(REPO_URI)";
    let mut command = Command::new("apt-get");
    command.args(["indextargets", "--format", format, "Created-By: Packages"]);
    output(&mut command).context("Debian's archive is read by apt-get")
}

/// The address of Debian's archive in these lines: of that for security, or of the other one.
fn mirror(lines: &str, is_security: bool) -> Option<&str> {
    lines.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (origin, suite, address) = (words.next()?, words.next()?, words.next()?);
        let is_it = origin == "Debian" && suite.ends_with("-security") == is_security;
        is_it.then_some(address)
    })
}

/// Runs a command, however long it takes, and returns its output.
fn output(command: &mut Command) -> Result<String> {
    command.env("LC_ALL", "C");
    let name = command.get_program().to_owned();
    let output = command.output();
    let output = output.with_context(|| format!("cannot run {}", name.display()))?;
    ensure!(
        output.status.success(),
        "{command:?} failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the mirrors are Debian's own, and that the one for security is told apart.
    #[test]
    fn mirrors_are_debians() {
        let lines = "other bookworm http://shop/apt\nDebian bookworm http://a/debian\n\
                     Debian bookworm-updates http://b/debian\nDebian bookworm-security http://c/security\n";
        assert_eq!(mirror(lines, false), Some("http://a/debian"));
        assert_eq!(mirror(lines, true), Some("http://c/security"));
        assert_eq!(mirror("other bookworm http://shop/apt\n", false), None);
    }
}
