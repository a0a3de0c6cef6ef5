//! `cargo xtask check`: checks formatting, lints and the kernel object's digest, for both workspaces.
//!
//! It must not change a file.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::{build_ebpf, cargo, digest, process, workspace};

/// Runs the task.
pub fn run() -> Result<ExitCode> {
    step("formatting", cargo::host("fmt").arg("--check"))?;
    step(
        "lints",
        cargo::host("clippy").args(["--workspace", "--all-targets", "--", "-D", "warnings"]),
    )?;
    let manifest = workspace::ebpf_dir().join("Cargo.toml");
    let mut command = cargo::host("fmt");
    command.args(["--check", "--manifest-path"]);
    step("formatting of the kernel program", command.arg(&manifest))?;
    // Clippy runs for the host, because that compiler has no `core` for eBPF. No lint depends on the target.
    let mut command = cargo::host("clippy");
    command.args(["--locked", "--manifest-path"]).arg(&manifest);
    command
        .arg("--target-dir")
        .arg(workspace::target_dir().join("bpf-check"))
        // The kernel program uses unstable features. This makes a stable compiler accept them for the lints.
        .env("RUSTC_BOOTSTRAP", "1")
        .env(build_ebpf::DIGEST_VARIABLE, "0".repeat(64))
        .args(["--", "-D", "warnings"]);
    step("lints of the kernel program", &mut command)?;
    println!("==> digest of the kernel object");
    let digest = digest::check(&workspace::root(), &workspace::committed_object())?;
    println!("    {digest}");
    println!("==> all checks passed");
    Ok(ExitCode::SUCCESS)
}

fn step(what: &str, command: &mut Command) -> Result<()> {
    println!("==> {what}");
    process::run(command).with_context(|| what.to_owned())
}
