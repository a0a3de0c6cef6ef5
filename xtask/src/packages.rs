//! Reads packages and their dependencies from cargo: licences, sources and checksums.
//!
//! Shared by dependencies and release. It must not know which packages are allowed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{cargo, process};

/// The platform of the released binaries.
pub const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// A package.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its licence expression.
    pub licence: Option<String>,
    /// The registry that it comes from; `None` for our own packages.
    pub source: Option<String>,
    /// The SHA-256 of its archive, from the lock file.
    pub checksum: Option<String>,
    /// Its description.
    pub description: Option<String>,
}

/// The packages of a workspace.
#[derive(Debug, Default)]
pub struct Packages {
    manifest: PathBuf,
    all: Vec<Package>,
    /// Dependencies that allow any version, as `package: dependency`.
    pub wildcards: Vec<String>,
}

impl Packages {
    /// Reads the workspace of a manifest.
    pub fn read(manifest: &Path) -> Result<Self> {
        let mut command = cargo::host("metadata");
        command.args(["--format-version", "1", "--locked", "--manifest-path"]);
        command.arg(manifest);
        let metadata = serde_json::from_str(&process::output(&mut command)?)
            .context("the output of cargo metadata is not JSON")?;
        let lock = manifest.with_file_name("Cargo.lock");
        let lock = fs::read_to_string(&lock).with_context(|| format!("no {}", lock.display()))?;
        Ok(Self {
            manifest: manifest.to_owned(),
            ..Self::parse(&metadata, &lock)?
        })
    }

    fn parse(metadata: &Value, lock: &str) -> Result<Self> {
        let checksums = checksums(lock);
        let mut found = Self::default();
        for package in list(&metadata["packages"]) {
            let field = |name: &str| package[name].as_str().map(str::to_owned);
            let (Some(name), Some(version)) = (field("name"), field("version")) else {
                bail!("cargo metadata has a package without a name");
            };
            for dependency in list(&package["dependencies"]) {
                let is_any = dependency["req"] == "*" && dependency["path"].is_null();
                if field("source").is_none() && is_any {
                    let other = dependency["name"].as_str().unwrap_or_default();
                    found.wildcards.push(format!("{name}: {other}"));
                }
            }
            let checksum = checksums.get(&(name.clone(), version.clone())).cloned();
            found.all.push(Package {
                licence: field("license"),
                source: field("source"),
                description: field("description"),
                name,
                version,
                checksum,
            });
        }
        found.all.sort();
        Ok(found)
    }

    /// All packages, sorted by name.
    pub fn all(&self) -> &[Package] {
        &self.all
    }

    /// The packages whose code is linked into one of our packages, that package first. Build dependencies and
    /// procedural macros are excluded, and only the built features count.
    pub fn linked_into(&self, name: &str) -> Result<Vec<&Package>> {
        let mut command = cargo::host("tree");
        command.args(["--locked", "--edges", "normal,no-proc-macro"]);
        command.args(["--prefix", "none", "--format", "{p}", "--package", name]);
        command.args(["--target", PLATFORM, "--manifest-path"]);
        let tree = process::output(command.arg(&self.manifest))?;
        let mut linked: Vec<&Package> = Vec::new();
        for line in tree.lines() {
            let mut words = line.split_whitespace();
            let (name, version) = (words.next(), words.next());
            let version = version.and_then(|version| version.strip_prefix('v'));
            let is_it = |it: &&Package| Some(&*it.name) == name && Some(&*it.version) == version;
            let found = self.all.iter().find(is_it);
            let found = found.with_context(|| format!("cargo metadata has no package {line}"))?;
            if !linked.contains(&found) {
                linked.push(found);
            }
        }
        let (_, others) = linked
            .split_first_mut()
            .with_context(|| format!("there is no package {name}"))?;
        others.sort();
        Ok(linked)
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The checksums of a lock file, by name and version. Cargo writes one field per line.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut checksums = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let value = |name: &str| {
            package.lines().find_map(|line| {
                let rest = line.strip_prefix(name)?.strip_prefix(" = \"")?;
                Some(rest.strip_suffix('"')?.to_owned())
            })
        };
        if let (Some(name), Some(version), Some(checksum)) =
            (value("name"), value("version"), value("checksum"))
        {
            checksums.insert((name, version), checksum);
        }
    }
    checksums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    /// Check that the linked packages are the dependencies of the program, direct and indirect, without build
    /// dependencies.
    #[test]
    fn linked_packages_are_those_of_the_program() {
        let packages = Packages::read(&workspace::root().join("Cargo.toml")).unwrap();
        let linked = packages.linked_into("heaptrace").unwrap();
        let is_linked = |name: &str| linked.iter().any(|package| package.name == name);
        let manifest = fs::read_to_string(workspace::root().join("heaptrace/Cargo.toml")).unwrap();
        let (_, asked) = manifest.split_once("[dependencies]\n").unwrap();
        let asked: Vec<&str> = asked
            .lines()
            .take_while(|line| !line.is_empty())
            .map(|line| line.split(['.', ' ']).next().unwrap())
            .collect();
        assert!(asked.len() > 20);
        for name in asked.into_iter().chain(["zstd-sys", "miniz_oxide"]) {
            assert!(is_linked(name), "{name}");
        }
        for name in ["xtask", "prost-derive", "syn", "cc", "heaptrace-tests"] {
            assert!(!is_linked(name), "{name}");
        }
        assert_eq!(linked[0].name, "heaptrace");
    }

    /// Check that every package from a registry has a checksum and a licence.
    #[test]
    fn packages_have_checksums_and_licences() {
        let manifest = workspace::root().join("Cargo.toml");
        let packages = Packages::read(&manifest).unwrap();
        for package in packages.all() {
            assert!(package.licence.is_some(), "{package:?}");
            assert_eq!(package.source.is_some(), package.checksum.is_some());
        }
    }
}
