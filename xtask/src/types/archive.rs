//! The sources of Debian's packages.
//!
//! Part of types. The system's own lists need not have sources: lists of this task's own are made of them. It must not know what is built.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{apt, process};

/// Where apt's lists of archives are.
const LISTS: [&str; 2] = ["/etc/apt/sources.list", "/etc/apt/sources.list.d"];

/// The source of a package, unpacked into a folder. What was unpacked before is kept.
pub(super) fn source(package: &str, folder: &Path) -> Result<PathBuf> {
    if let Some(found) = unpacked(folder) {
        return Ok(found);
    }
    apt::ensure(&["dpkg-dev"], "for unpacking sources")?;
    let parts = folder.join("apt/sources");
    let lists = folder.join("apt/lists/partial");
    for it in [&parts, &lists] {
        fs::create_dir_all(it).with_context(|| format!("cannot make {}", it.display()))?;
    }
    let mut count = 0;
    for path in known_lists() {
        let text = fs::read_to_string(&path).unwrap_or_default();
        if let (Some(text), Some(name)) = (of_sources(&text), path.file_name()) {
            fs::write(parts.join(name), text)?;
            count += 1;
        }
    }
    if count == 0 {
        bail!("no archive of Debian's is known to apt");
    }
    let option = |name: &str, value: &Path| {
        let mut word = OsString::from(name);
        word.push("=");
        word.push(value);
        ["-o".into(), word]
    };
    let options: Vec<OsString> = [
        option("Dir::Etc::SourceList", Path::new("/dev/null")),
        option("Dir::Etc::SourceParts", &parts),
        option("Dir::State::Lists", &folder.join("apt/lists")),
        option("APT::Sandbox::User", Path::new("root")),
    ]
    .concat();
    println!("Downloading the source of Debian's package {package}");
    process::run(
        Command::new("apt-get")
            .args(&options)
            .args(["-qq", "update"]),
    )?;
    let mut download = Command::new("apt-get");
    download.args(&options).args(["-qq", "source", package]);
    process::run(download.current_dir(folder))?;
    unpacked(folder).with_context(|| format!("apt has unpacked no source of {package}"))
}

/// The folder of the source.
fn unpacked(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.filter_map(Result::ok);
    let mut paths = entries.map(|it| it.path());
    paths.find(|it| it.join("debian/control").exists())
}

fn known_lists() -> Vec<PathBuf> {
    let [list, folder] = LISTS;
    let mut paths = vec![PathBuf::from(list)];
    let others = fs::read_dir(folder).into_iter().flatten();
    paths.extend(others.filter_map(|it| Some(it.ok()?.path())));
    // apt reads no others.
    let is_list = |it: &PathBuf| {
        it.extension()
            .is_some_and(|it| it == "list" || it == "sources")
    };
    paths.retain(is_list);
    paths
}

/// A list of packages as a list of sources; `None` if it is not one of Debian's.
fn of_sources(list: &str) -> Option<String> {
    let is_debian = |it: &str| !it.trim_start().starts_with('#') && it.contains("/debian");
    if !list.lines().any(is_debian) {
        return None;
    }
    let lines = list
        .lines()
        .map(|line| match line.split_once(char::is_whitespace) {
            Some(("Types:", _)) => "Types: deb-src".to_owned(),
            Some(("deb", rest)) => format!("deb-src {rest}"),
            _ => line.to_owned(),
        });
    Some(lines.map(|it| it + "\n").collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that lists in both forms become lists of sources, and that lists of other archives are left out.
    #[test]
    fn lists_become_lists_of_sources() {
        assert_eq!(
            of_sources("Types: deb\n# http://a/debian/1\nURIs: http://a/debian\nSuites: x\n")
                .unwrap(),
            "Types: deb-src\n# http://a/debian/1\nURIs: http://a/debian\nSuites: x\n"
        );
        assert_eq!(
            of_sources("deb http://a/debian x main\n").unwrap(),
            "deb-src http://a/debian x main\n"
        );
        assert_eq!(of_sources("deb http://b/cloud x main\n# /debian\n"), None);
    }
}
