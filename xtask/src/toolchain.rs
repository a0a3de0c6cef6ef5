//! The compiler for the kernel program. It must have the sources of `core`, because no release includes
//! `core` for eBPF.
//!
//! Part of build-ebpf. It must not know what is built.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{apt, process};

/// Major versions of LLVM that the pinned bpf-linker can be built with.
pub const LLVM_MAJORS: std::ops::RangeInclusive<u32> = 21..=23;

/// Debian's packages of a recent Rust compiler with its sources.
const DEBIAN_PACKAGES: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];

/// A compiler that can build `core`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolchain {
    /// Its name in messages.
    pub name: String,
    /// The first line of its rustc's version.
    pub version: String,
    /// The full path of its cargo.
    pub cargo: PathBuf,
    /// The full path of its rustc.
    pub rustc: PathBuf,
    /// The folder that it is installed in.
    pub sysroot: PathBuf,
    /// Major version of its LLVM; the linker's must not be older.
    pub llvm_major: u32,
    /// Whether unstable options must be enabled by a variable.
    pub stable: bool,
}

impl Toolchain {
    /// The folder of the standard library's sources.
    pub fn library(&self) -> PathBuf {
        self.sysroot.join("lib/rustlib/src/rust/library")
    }
}

/// rustup's nightly, if one has the sources.
pub fn rustup_nightly() -> Option<Toolchain> {
    let rustup = process::find_program("rustup")?;
    let list = query(Command::new(&rustup).args(["toolchain", "list"]))?;
    list.lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| name.starts_with("nightly"))
        .find_map(|name| {
            let mut command = Command::new(&rustup);
            command.args(["run", name, "rustc", "--print", "sysroot"]);
            let bin = PathBuf::from(query(&mut command)?.trim()).join("bin");
            let title = format!("rustup's {name}");
            inspect(&title, &bin.join("cargo"), &bin.join("rustc"), false).ok()
        })
}

/// Debian's compiler, which is installed first if it is missing or too old.
pub fn debian() -> Result<Toolchain> {
    if let Ok(toolchain) = debian_as_it_is() {
        return Ok(toolchain);
    }
    apt::ensure_newest(&DEBIAN_PACKAGES, "for building the kernel program")?;
    debian_as_it_is().context(
        "no compiler that can build for eBPF. Either of these gives one: \
         `rustup toolchain install nightly --component rust-src`, \
         or Debian's packages rustc-web, cargo-web and rust-web-src",
    )
}

/// Debian's compiler, if it is installed and not too old.
pub fn installed_debian() -> Option<Toolchain> {
    debian_as_it_is().ok()
}

fn debian_as_it_is() -> Result<Toolchain> {
    let toolchain = inspect(
        "Debian's",
        Path::new("/usr/bin/cargo"),
        Path::new("/usr/bin/rustc"),
        true,
    )?;
    if !LLVM_MAJORS.contains(&toolchain.llvm_major) {
        bail!(
            "{} is built on LLVM {}, and bpf-linker needs one of {LLVM_MAJORS:?}",
            toolchain.name,
            toolchain.llvm_major
        );
    }
    Ok(toolchain)
}

fn inspect(title: &str, cargo: &Path, rustc: &Path, stable: bool) -> Result<Toolchain> {
    for program in [cargo, rustc] {
        if !process::is_executable(program) {
            bail!("{} does not exist, or is not executable", program.display());
        }
    }
    let version = query(Command::new(rustc).arg("-vV"))
        .with_context(|| format!("{} does not run", rustc.display()))?;
    let sysroot = query(Command::new(rustc).args(["--print", "sysroot"]))
        .with_context(|| format!("{} names no sysroot", rustc.display()))?;
    let first = version.lines().next().unwrap_or("rustc").trim();
    let toolchain = Toolchain {
        name: format!("{title} {first}"),
        version: first.to_owned(),
        cargo: cargo.to_owned(),
        rustc: rustc.to_owned(),
        sysroot: PathBuf::from(sysroot.trim()),
        llvm_major: llvm_major(&version)
            .with_context(|| format!("{} names no LLVM version", rustc.display()))?,
        stable,
    };
    if !toolchain.library().join("core").is_dir() {
        bail!("{} has no rust-src", toolchain.name);
    }
    Ok(toolchain)
}

fn llvm_major(version: &str) -> Option<u32> {
    let line = version
        .lines()
        .find_map(|line| line.strip_prefix("LLVM version:"))?;
    line.trim().split('.').next()?.parse().ok()
}

/// The output of a compiler. The caller's environment must not select another one.
fn query(command: &mut Command) -> Option<String> {
    process::query(command.env_remove("RUSTUP_TOOLCHAIN"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that LLVM's major version is read from rustc's output, and that a compiler without LLVM gives
    /// none.
    #[test]
    fn llvm_major_is_read() {
        let version = "rustc 1.96.0 (ac68faa20 2026-05-25)\nbinary: rustc\nLLVM version: 22.1.8\n";
        assert_eq!(llvm_major(version), Some(22));
        assert_eq!(llvm_major("rustc 1.96.0\nbinary: rustc\n"), None);
    }

    /// Check that the error for a missing compiler names it.
    #[test]
    fn missing_compilers_are_named() {
        let nowhere = Path::new("/nowhere/rustc");
        let error = inspect("x", nowhere, nowhere, true).unwrap_err();
        assert!(error.to_string().contains("/nowhere/rustc"), "{error}");
    }
}
