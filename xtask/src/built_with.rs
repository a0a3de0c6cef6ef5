//! The tools that built the committed kernel object, in a file beside the object.
//!
//! Part of build-ebpf. The same sources give the same bytes only with the same compiler and linker, so their
//! versions are committed with the object. It must not know how the tools are found.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::{process, workspace};

/// The versions of all tools that affect the object's bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuiltWith {
    /// The first line of the compiler's version.
    pub rustc: String,
    /// Version of the compiler's LLVM.
    pub rustc_llvm: String,
    /// The first line of the linker's version.
    pub linker: String,
    /// Version of the LLVM of the linker and `llvm-strip`.
    pub linker_llvm: String,
}

/// The file beside the committed object.
pub fn path() -> PathBuf {
    workspace::committed_object().with_extension("built-with")
}

const HEAD: &str = "\
# Written by `cargo xtask build-ebpf`: what heaptrace.bpf.o was built with. `cargo xtask build-ebpf --check`
# builds it again. With the same tools, it expects the same bytes.
";

impl BuiltWith {
    /// Asks the tools for their versions.
    pub fn of(rustc: &Path, linker: &Path, llvm_prefix: &Path) -> Result<Self> {
        let ask = |program: &Path, word: &str| {
            process::query(std::process::Command::new(program).arg(word))
                .with_context(|| format!("{} {word} prints nothing", program.display()))
        };
        let version = ask(rustc, "-vV")?;
        let llvm = version
            .lines()
            .find_map(|line| line.strip_prefix("LLVM version: "));
        // A linker that includes its LLVM needs no installed LLVM.
        let own = ask(&llvm_prefix.join("bin/llvm-config"), "--version");
        let first = |text: &str| text.lines().next().unwrap_or_default().trim().to_owned();
        Ok(Self {
            rustc: first(&version),
            rustc_llvm: llvm.unwrap_or("unknown").to_owned(),
            linker: first(&ask(linker, "--version")?),
            linker_llvm: own.map_or_else(|_| "its own".to_owned(), |text| first(&text)),
        })
    }

    /// The committed versions and the object's SHA-256; `None` if the file is missing or incomplete.
    pub fn read(path: &Path) -> Option<(Self, String)> {
        let text = fs::read_to_string(path).ok()?;
        let value = |name: &str| {
            let rest = |line: &str| {
                line.strip_prefix(name)?
                    .strip_prefix(": ")
                    .map(str::to_owned)
            };
            text.lines().find_map(rest)
        };
        let built = Self {
            rustc: value("rustc")?,
            rustc_llvm: value("rustc's LLVM")?,
            linker: value("linker")?,
            linker_llvm: value("linker's LLVM")?,
        };
        Some((built, value("sha256")?))
    }

    /// Writes the versions and an object's SHA-256 to a file.
    pub fn write(&self, path: &Path, object: &Path) -> Result<()> {
        let text = format!("{HEAD}{self}\nsha256: {}\n", sha256(object)?);
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl fmt::Display for BuiltWith {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "rustc: {}", self.rustc)?;
        writeln!(f, "rustc's LLVM: {}", self.rustc_llvm)?;
        writeln!(f, "linker: {}", self.linker)?;
        write!(f, "linker's LLVM: {}", self.linker_llvm)
    }
}

/// The SHA-256 of a file, in hexadecimal.
pub fn sha256(path: &Path) -> Result<String> {
    let content = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let digest = Sha256::digest(content);
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that written versions are read back, and that a file without one of the lines is refused.
    #[test]
    fn versions_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let (file, object) = (folder.path().join("built-with"), folder.path().join("o"));
        fs::write(&object, b"abc").unwrap();
        let built = BuiltWith {
            rustc: "rustc 1.96.0 (x)".to_owned(),
            rustc_llvm: "22.1.8".to_owned(),
            linker: "bpf-linker 0.13.0".to_owned(),
            linker_llvm: "22.1.8".to_owned(),
        };
        built.write(&file, &object).unwrap();
        let (read, sum) = BuiltWith::read(&file).unwrap();
        assert_eq!(read, built);
        assert!(sum.starts_with("ba7816bf"), "{sum}");
        fs::write(&file, "rustc: x\n").unwrap();
        assert_eq!(BuiltWith::read(&file), None);
    }

    /// Check that the committed object has the SHA-256 that the file beside it names.
    #[test]
    fn committed_object_has_the_recorded_digest() {
        let (_, sum) = BuiltWith::read(&path()).unwrap();
        assert_eq!(sum, sha256(&workspace::committed_object()).unwrap());
    }
}
