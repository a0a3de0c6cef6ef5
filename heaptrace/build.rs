//! Copies the kernel object to where the crate embeds it: the committed one, or the one that a variable
//! names.
//!
//! No stage of the flow. It must not build the object, because that needs another compiler, and users have
//! only stable Rust.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

/// The variable with the absolute path of an object to embed instead of the committed one.
const VARIABLE: &str = "HEAPTRACE_BPF_OBJECT";

fn main() -> ExitCode {
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    match copy() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            println!("cargo::error={message}");
            ExitCode::FAILURE
        }
    }
}

fn copy() -> Result<(), String> {
    let variable = |name| env::var_os(name).map(PathBuf::from);
    let (Some(package), Some(out)) = (variable("CARGO_MANIFEST_DIR"), variable("OUT_DIR")) else {
        return Err("run this build script with cargo".to_owned());
    };
    let object = match variable(VARIABLE) {
        Some(path) if path.is_relative() => {
            return Err(format!(
                "{VARIABLE} must be an absolute path, not {}",
                path.display()
            ));
        }
        Some(path) => path,
        None => package.join("bpf/heaptrace.bpf.o"),
    };
    println!("cargo::rerun-if-changed={}", object.display());
    let content = fs::read(&object).map_err(|error| {
        format!(
            "cannot read the kernel object {} ({error}); build it from source with `cargo xtask build-ebpf`",
            object.display()
        )
    })?;
    let copy = out.join("heaptrace.bpf.o");
    fs::write(&copy, content).map_err(|error| format!("{}: {error}", copy.display()))
}
