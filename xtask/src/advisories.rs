//! `cargo xtask advisories`: known security advisories of crates, and which packages they affect.
//!
//! The facts come from a clone of RustSec's database and are kept in advisories.toml, so that `cargo xtask dependencies` needs no
//! network. It must not know how packages are found.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use semver::{Version, VersionReq};
use serde::Deserialize;

use crate::packages::Package;
use crate::{process, workspace};

/// The snapshot, below the repository's root.
const FILE: &str = "advisories.toml";

/// Update advisories.toml from a clone of <https://github.com/rustsec/advisory-db>.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The folder of the clone.
    folder: PathBuf,
}

/// All advisories at a time.
#[derive(Debug, Deserialize)]
pub struct Snapshot {
    /// The date of the database's last commit.
    pub date: String,
    /// That commit.
    pub commit: String,
    advisories: Vec<Advisory>,
}

/// What is known about some versions of a crate.
#[derive(Debug, Deserialize)]
pub struct Advisory {
    /// Its name in the database.
    pub id: String,
    package: String,
    /// Empty for a vulnerability; else `unsound`, `unmaintained` or `notice`.
    kind: String,
    patched: Vec<String>,
    unaffected: Vec<String>,
}

/// The head of a file of the database.
#[derive(Deserialize)]
struct Entry {
    advisory: Head,
    #[serde(default)]
    versions: Versions,
}

#[derive(Deserialize)]
struct Head {
    id: String,
    package: String,
    informational: Option<String>,
    withdrawn: Option<String>,
}

#[derive(Default, Deserialize)]
struct Versions {
    #[serde(default)]
    patched: Vec<String>,
    #[serde(default)]
    unaffected: Vec<String>,
}

/// Run the task.
pub fn run(args: &Args) -> Result<ExitCode> {
    let git = |format: &str| {
        let mut log = Command::new("git");
        log.arg("-C").arg(&args.folder);
        log.args(["log", "-1", "--date=short"]);
        log.arg(format!("--format={format}"));
        process::output(&mut log)
    };
    let mut advisories = Vec::new();
    read(&args.folder.join("crates"), &mut advisories)?;
    advisories.sort_by(|a, b| (&a.package, &a.id).cmp(&(&b.package, &b.id)));
    if advisories.is_empty() {
        bail!("{} has no advisories", args.folder.display());
    }
    let snapshot = Snapshot {
        date: git("%cd")?.trim().to_owned(),
        commit: git("%H")?.trim().to_owned(),
        advisories,
    };
    let path = workspace::root().join(FILE);
    fs::write(&path, snapshot.text()?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("{} advisories of {}", snapshot.count(), snapshot.date);
    Ok(ExitCode::SUCCESS)
}

/// Reads the advisories below a folder, except withdrawn ones.
fn read(folder: &Path, advisories: &mut Vec<Advisory>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            read(&path, advisories)?;
        } else if path.extension().is_some_and(|it| it == "md") {
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            advisories.extend(parse(&text).with_context(|| path.display().to_string())?);
        }
    }
    Ok(())
}

/// Reads the head of a file of the database; `None` if the advisory was withdrawn.
fn parse(text: &str) -> Result<Option<Advisory>> {
    let head = text
        .strip_prefix("```toml")
        .and_then(|rest| rest.split_once("```"))
        .context("no head in TOML")?;
    let Entry { advisory, versions } = toml::from_str(head.0)?;
    if advisory.withdrawn.is_some() {
        return Ok(None);
    }
    Ok(Some(Advisory {
        id: advisory.id,
        package: advisory.package,
        kind: advisory.informational.unwrap_or_default(),
        patched: versions.patched,
        unaffected: versions.unaffected,
    }))
}

impl Snapshot {
    /// Reads the committed snapshot.
    pub fn committed() -> Result<Self> {
        let path = workspace::root().join(FILE);
        let text = fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
        toml::from_str(&text).with_context(|| path.display().to_string())
    }

    /// How many advisories it has.
    pub fn count(&self) -> usize {
        self.advisories.len()
    }

    /// The advisories that affect a package.
    pub fn of<'a>(&'a self, package: &'a Package) -> impl Iterator<Item = Result<&'a Advisory>> {
        self.advisories
            .iter()
            .filter(|advisory| advisory.package == package.name)
            .filter_map(|advisory| match advisory.affects(&package.version) {
                Ok(true) => Some(Ok(advisory)),
                Ok(false) => None,
                Err(error) => Some(Err(error)),
            })
    }

    /// The file: a line per advisory, so that changes can be read.
    fn text(&self) -> Result<String> {
        let mut text = format!(
            "# Which versions of crates have known advisories: facts of RustSec's database, written by `cargo xtask advisories`.\n\n\
             date = {:?}\ncommit = {:?}\nadvisories = [\n",
            self.date, self.commit
        );
        for advisory in &self.advisories {
            let Advisory {
                id,
                package,
                kind,
                patched,
                unaffected,
            } = advisory;
            // Strings and lists of strings are the same in TOML and JSON.
            let patched = serde_json::to_string(patched)?;
            let unaffected = serde_json::to_string(unaffected)?;
            text.push_str(&format!(
                "    {{ id = {id:?}, package = {package:?}, kind = {kind:?}, patched = {patched}, unaffected = {unaffected} }},\n"
            ));
        }
        text.push_str("]\n");
        Ok(text)
    }
}

impl Advisory {
    /// Whether it holds for a version.
    fn affects(&self, version: &str) -> Result<bool> {
        let version = Version::parse(version).with_context(|| version.to_owned())?;
        for range in self.patched.iter().chain(&self.unaffected) {
            let range =
                VersionReq::parse(range).with_context(|| format!("{}: {range}", self.id))?;
            if range.matches(&version) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What kind of advisory it is, in words.
    pub fn kind(&self) -> &str {
        if self.kind.is_empty() {
            "vulnerable"
        } else {
            &self.kind
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "```toml\n[advisory]\nid = \"RUSTSEC-2025-0023\"\npackage = \"tokio\"\ninformational = \"unsound\"\n\
        [versions]\npatched = [\">= 1.38.2, < 1.39.0\", \">= 1.44.2\"]\nunaffected = [\"< 0.2.5\"]\n```\n\n# Title\n";

    /// Check that an advisory affects the versions between those that are patched and those that never had the fault.
    #[test]
    fn affected_versions() {
        let advisory = parse(TEXT).unwrap().unwrap();
        assert_eq!(advisory.kind(), "unsound");
        for (version, affected) in [
            ("0.2.4", false),
            ("0.2.5", true),
            ("1.38.1", true),
            ("1.38.2", false),
            ("1.39.0", true),
            ("1.44.2", false),
        ] {
            assert_eq!(advisory.affects(version).unwrap(), affected, "{version}");
        }
        let withdrawn = TEXT.replace("[versions]", "withdrawn = \"2025-01-01\"\n[versions]");
        assert!(parse(&withdrawn).unwrap().is_none());
        assert!(parse("# Title").is_err());
    }

    /// Check that the written snapshot reads as what it was made from.
    #[test]
    fn snapshots_read_back() {
        let snapshot = Snapshot {
            date: "2026-01-01".to_owned(),
            commit: "0123".to_owned(),
            advisories: vec![parse(TEXT).unwrap().unwrap()],
        };
        let text = snapshot.text().unwrap();
        let read: Snapshot = toml::from_str(&text).unwrap();
        assert_eq!(read.text().unwrap(), text);
        assert!(read.advisories[0].affects("1.38.1").unwrap());
    }
}
