//! bpf-linker: found in PATH, or built once into target/tools with the compiler's LLVM.
//!
//! Part of build-ebpf. It must not know what is linked.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::toolchain::{LLVM_MAJORS, Toolchain};
use crate::{apt, cargo, process, workspace};

/// The version that is known to link this program.
const VERSION: &str = "0.13.0";

/// Whether a linker for this toolchain is available: it is in PATH, or its LLVM is installed or can be
/// installed.
pub fn is_available(toolchain: &Toolchain) -> bool {
    in_path(toolchain).is_some()
        || LLVM_MAJORS.contains(&toolchain.llvm_major)
            && (llvm_prefix(toolchain).join("bin/llvm-config").exists()
                || apt::is_known(&llvm_package(toolchain)))
}

/// The path of a bpf-linker for this toolchain, which is built first if there is none.
pub fn ensure(toolchain: &Toolchain) -> Result<PathBuf> {
    if let Some(path) = in_path(toolchain) {
        return Ok(path);
    }
    // The version of its LLVM is part of the name, because the compiler's LLVM changes.
    let folder = workspace::target_dir().join(format!(
        "tools/bpf-linker-{VERSION}-llvm-{}",
        toolchain.llvm_major
    ));
    let linker = folder.join("bin/bpf-linker");
    let prefix = llvm_prefix(toolchain);
    if !prefix.join("bin/llvm-config").exists() {
        apt::ensure(&[&llvm_package(toolchain)], "for bpf-linker")?;
    }
    if works(&linker) {
        return Ok(linker);
    }
    if !LLVM_MAJORS.contains(&toolchain.llvm_major) {
        bail!(
            "bpf-linker {VERSION} can't be built with LLVM {}, which {} has; it needs one of {LLVM_MAJORS:?}",
            toolchain.llvm_major,
            toolchain.name
        );
    }
    println!(
        "Building bpf-linker {VERSION} with LLVM {} into {}",
        toolchain.llvm_major,
        folder.display()
    );
    apt::ensure_cc("for bpf-linker")?;
    let mut command = cargo::shielded(&toolchain.cargo, &toolchain.rustc);
    command
        .args(["install", "bpf-linker", "--version", VERSION, "--locked"])
        .args(["--force", "--no-default-features", "--features"])
        .arg(format!("llvm-{}", toolchain.llvm_major))
        .arg("--root")
        .arg(&folder)
        .env("LLVM_PREFIX", &prefix)
        // Not in the repository, whose settings are for its own crates.
        .current_dir("/");
    process::run(&mut command)?;
    if !works(&linker) {
        bail!("{} was built, but does not run", linker.display());
    }
    Ok(linker)
}

/// The folder of the toolchain's LLVM in Debian.
pub fn llvm_prefix(toolchain: &Toolchain) -> PathBuf {
    PathBuf::from(format!("/usr/lib/llvm-{}", toolchain.llvm_major))
}

fn llvm_package(toolchain: &Toolchain) -> String {
    format!("llvm-{}-dev", toolchain.llvm_major)
}

/// A linker that the user installed is used with the user's rustup. For Debian's compiler, a linker is built.
fn in_path(toolchain: &Toolchain) -> Option<PathBuf> {
    if toolchain.stable {
        return None;
    }
    let path = process::find_program("bpf-linker").or_else(|| {
        let home = env::var_os("CARGO_HOME")?;
        Some(Path::new(&home).join("bin/bpf-linker"))
    })?;
    works(&path).then_some(path)
}

fn works(linker: &Path) -> bool {
    linker.exists()
        && std::process::Command::new(linker)
            .arg("--version")
            .output()
            .is_ok_and(|output| output.status.success())
}
