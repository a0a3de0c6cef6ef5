//! `cargo xtask dependencies`: licences, sources, versions and advisories of all dependencies, by deny.toml.
//!
//! It checks what `cargo deny check` checks, without installing anything. Advisories come from the committed snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::advisories::Snapshot;
use crate::packages::{Package, Packages};
use crate::{licence, workspace};

/// The registry of every package, as lock files name it.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The parts of deny.toml that are checked here.
#[derive(Debug, Deserialize)]
struct Rules {
    advisories: Advisories,
    licenses: Licenses,
    bans: Bans,
}

#[derive(Debug, Deserialize)]
struct Advisories {
    ignore: Vec<Ignored>,
}

/// An advisory that does not matter here.
#[derive(Debug, Deserialize)]
struct Ignored {
    id: String,
    reason: String,
}

#[derive(Debug, Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Bans {
    skip: Vec<Skip>,
}

/// A version that is allowed beside another one.
#[derive(Debug, Deserialize)]
struct Skip {
    #[serde(rename = "crate")]
    spec: String,
    reason: String,
}

impl Skip {
    fn is(&self, package: &Package) -> bool {
        let Some((name, version)) = self.spec.split_once('@') else {
            return false;
        };
        let begins = |rest: &str| rest.is_empty() || rest.starts_with('.');
        name == package.name && package.version.strip_prefix(version).is_some_and(begins)
    }
}

/// Runs the task.
pub fn run() -> Result<ExitCode> {
    let path = workspace::root().join("deny.toml");
    let text = fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
    let rules: Rules = toml::from_str(&text).with_context(|| path.display().to_string())?;
    let mut faults = Vec::new();
    let mut unused: Vec<&Skip> = rules.bans.skip.iter().collect();
    let snapshot = Snapshot::committed()?;
    let ignored = &rules.advisories.ignore;
    let mut met = BTreeSet::new();
    let mut count = 0;
    for manifest in [
        workspace::root().join("Cargo.toml"),
        workspace::ebpf_dir().join("Cargo.toml"),
    ] {
        let packages = Packages::read(&manifest)?;
        count += packages.all().len();
        faults.extend(check(&packages, &rules));
        faults.extend(affected(&packages, &snapshot, ignored, &mut met)?);
        let all = packages.all();
        unused.retain(|skip| !all.iter().any(|package| skip.is(package)));
    }
    faults.extend(unused.iter().map(|skip| {
        format!(
            "deny.toml skips {}, which is not used: remove it",
            skip.spec
        )
    }));
    for Ignored { id, reason } in ignored {
        if !met.contains(id) {
            faults.push(format!(
                "deny.toml ignores {id}, which affects nothing: remove it"
            ));
        } else if reason.is_empty() {
            faults.push(format!("deny.toml does not say why {id} is ignored"));
        }
    }
    for fault in &faults {
        eprintln!("    {fault}");
    }
    println!(
        "{count} packages: licences, sources, checksums and versions checked, and {} advisories of {}.",
        snapshot.count(),
        snapshot.date
    );
    Ok(if faults.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The packages with advisories that deny.toml does not ignore. Adds the ids of those that it ignores to `met`.
fn affected(
    packages: &Packages,
    snapshot: &Snapshot,
    ignored: &[Ignored],
    met: &mut BTreeSet<String>,
) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for package in packages.all().iter().filter(|it| it.source.is_some()) {
        for advisory in snapshot.of(package) {
            let advisory = advisory?;
            if ignored.iter().any(|it| it.id == advisory.id) {
                met.insert(advisory.id.clone());
                continue;
            }
            faults.push(format!(
                "{} {} is {}: see {}",
                package.name,
                package.version,
                advisory.kind(),
                advisory.id
            ));
        }
    }
    Ok(faults)
}

/// What is wrong with a workspace's packages.
fn check(packages: &Packages, rules: &Rules) -> Vec<String> {
    let mut faults = Vec::new();
    let mut versions = BTreeMap::<&str, BTreeSet<&str>>::new();
    for package in packages.all() {
        let name = format!("{} {}", package.name, package.version);
        match &package.licence {
            None => faults.push(format!("{name} has no licence")),
            Some(expression) => match licence::is_allowed(expression, &rules.licenses.allow) {
                Ok(true) => {}
                Ok(false) => faults.push(format!(
                    "{name} is under {expression}, which deny.toml does not allow"
                )),
                Err(error) => faults.push(format!("{name}: {error}")),
            },
        }
        if let Some(source) = &package.source {
            if source != REGISTRY {
                faults.push(format!("{name} is not from crates.io"));
            }
            if package.checksum.is_none() {
                faults.push(format!("{name} has no checksum in the lock file"));
            }
        }
        if !rules.bans.skip.iter().any(|skip| skip.is(package)) {
            versions
                .entry(&package.name)
                .or_default()
                .insert(&package.version);
        }
    }
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        faults.push(format!(
            "{name} has several versions, {versions:?}: use one version, or give a reason in deny.toml"
        ));
    }
    let any = packages.wildcards.iter();
    faults.extend(any.map(|it| format!("{it} allows any version: give one")));
    let silent = rules.bans.skip.iter().filter(|skip| skip.reason.is_empty());
    faults
        .extend(silent.map(|skip| format!("deny.toml gives no reason for skipping {}", skip.spec)));
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a package in an affected version is found, unless deny.toml ignores the advisory.
    #[test]
    fn affected_packages_are_found() {
        let packages = Packages::read(&workspace::root().join("Cargo.toml")).unwrap();
        let version = |name: &str| {
            let mut all = packages.all().iter();
            all.find(|it| it.name == name).unwrap().version.clone()
        };
        let text = format!(
            "date = \"\"\ncommit = \"\"\nadvisories = [{{ id = \"R-1\", package = \"clap\", kind = \"\", \
             patched = [\">{}\"], unaffected = [] }}]",
            version("clap")
        );
        let snapshot: Snapshot = toml::from_str(&text).unwrap();
        let mut met = BTreeSet::new();
        let faults = affected(&packages, &snapshot, &[], &mut met).unwrap();
        assert!(faults.len() == 1 && faults[0].contains("clap") && faults[0].contains("R-1"));
        let ignored = [Ignored {
            id: "R-1".to_owned(),
            reason: "not used".to_owned(),
        }];
        let faults = affected(&packages, &snapshot, &ignored, &mut met).unwrap();
        assert!(faults.is_empty() && met.contains("R-1"));
    }

    /// Check that what is committed passes, and that each rule finds something where it is another one.
    #[test]
    fn committed_packages_pass_and_broken_rules_fail() {
        let text = fs::read_to_string(workspace::root().join("deny.toml")).unwrap();
        let mut rules: Rules = toml::from_str(&text).unwrap();
        let packages = Packages::read(&workspace::root().join("Cargo.toml")).unwrap();
        assert_eq!(check(&packages, &rules), Vec::<String>::new());
        rules.licenses.allow.retain(|name| name != "CDDL-1.0");
        rules.bans.skip.retain(|skip| !skip.spec.starts_with("syn"));
        let faults = check(&packages, &rules);
        assert!(
            faults.len() == 2 && faults[0].contains("inferno") && faults[1].contains("syn"),
            "{faults:?}"
        );
    }
}
