//! `cargo xtask release`: builds the binary, a list of its packages, and the checksums of both.
//!
//! It must not know what heaptrace does. The list is reproducible: it has no time and no machine name.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::built_with::sha256;
use crate::packages::{Package, Packages};
use crate::{run, workspace};

/// The name of the list, as CycloneDX tools expect it.
const LIST: &str = "heaptrace.cdx.json";

/// Runs the task.
pub fn run() -> Result<ExitCode> {
    run::build_release(None)?;
    let folder = workspace::target_dir().join("release-files");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let binary = folder.join("heaptrace");
    fs::copy(workspace::heaptrace_binary(), &binary)
        .with_context(|| format!("cannot write {}", binary.display()))?;
    let list = folder.join(LIST);
    let text = format!("{:#}\n", bill(&sha256(&binary)?)?);
    fs::write(&list, text).with_context(|| format!("cannot write {}", list.display()))?;
    let sums = sums(&folder, &["heaptrace", LIST])?;
    fs::write(folder.join("SHA256SUMS"), &sums).context("cannot write SHA256SUMS")?;
    print!("{sums}");
    println!("In {}", folder.display());
    Ok(ExitCode::SUCCESS)
}

/// Checksums in the format of `sha256sum -c`.
fn sums(folder: &Path, names: &[&str]) -> Result<String> {
    let mut text = String::new();
    for name in names {
        text.push_str(&format!("{}  {name}\n", sha256(&folder.join(name))?));
    }
    Ok(text)
}

/// The CycloneDX list of the binary's packages, including those of the kernel program.
fn bill(binary: &str) -> Result<Value> {
    let root = Packages::read(&workspace::root().join("Cargo.toml"))?;
    let kernel = Packages::read(&workspace::ebpf_dir().join("Cargo.toml"))?;
    let linked = root.linked_into("heaptrace")?;
    let (own, others) = linked.split_first().context("no package heaptrace")?;
    let mut components: Vec<Value> = others
        .iter()
        .map(|package| component(package, "agent"))
        .collect();
    for package in kernel.linked_into("heaptrace-ebpf")? {
        components.push(component(package, "kernel object"));
    }
    let mut subject = component(own, "agent");
    subject["type"] = "application".into();
    subject["hashes"] = json!([{ "alg": "SHA-256", "content": binary }]);
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": subject },
        "components": components,
    }))
}

fn component(package: &Package, part: &str) -> Value {
    // A package can be in both parts, in different versions.
    let reference = format!("{part}:{}@{}", package.name, package.version);
    let mut component = json!({
        "type": "library",
        "bom-ref": reference,
        "name": package.name,
        "version": package.version,
        "scope": "required",
        "properties": [{ "name": "heaptrace:part", "value": part }],
    });
    if package.source.is_some() {
        component["purl"] = format!("pkg:cargo/{}@{}", package.name, package.version).into();
    }
    if let Some(licence) = &package.licence {
        component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
    }
    if let Some(description) = &package.description {
        component["description"] = description.trim().into();
    }
    if let Some(checksum) = &package.checksum {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the list has every package that the binary and its kernel program link, with its licence,
    /// and with its checksum if it is not ours.
    #[test]
    fn every_package_is_listed() {
        let bill = bill("00").unwrap();
        let listed = bill["components"].as_array().unwrap();
        let root = workspace::root();
        let mut expected = 0;
        for (manifest, name, part, skipped) in [
            (root.join("Cargo.toml"), "heaptrace", "agent", 1),
            (
                root.join("heaptrace-ebpf/Cargo.toml"),
                "heaptrace-ebpf",
                "kernel object",
                0,
            ),
        ] {
            let packages = Packages::read(&manifest).unwrap();
            for package in packages.linked_into(name).unwrap().iter().skip(skipped) {
                let reference = format!("{part}:{}@{}", package.name, package.version);
                let entry = listed.iter().find(|it| it["bom-ref"] == *reference);
                let entry = entry.unwrap_or_else(|| panic!("{reference} is missing"));
                assert!(entry["licenses"][0]["expression"].is_string(), "{entry}");
                assert_eq!(entry["hashes"].is_array(), package.source.is_some());
                expected += 1;
            }
        }
        assert_eq!(listed.len(), expected);
        assert_eq!(bill["metadata"]["component"]["name"], "heaptrace");
    }
}
