//! Puts the kernel object where the crate embeds it from: the committed one, or the one that a variable names.
//!
//! No stage of the flow. It must not build the object: that takes another compiler, and users need only stable Rust.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

/// Names an object to embed in place of the committed one, as an absolute path.
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
        return Err("this build script runs under cargo only".to_owned());
    };
    let object = match variable(VARIABLE) {
        Some(path) if path.is_relative() => {
            return Err(format!(
                "{VARIABLE} takes an absolute path, and got {}",
                path.display()
            ));
        }
        Some(path) => path,
        None => package.join("bpf/heaptrace.bpf.o"),
    };
    println!("cargo::rerun-if-changed={}", object.display());
    let content = fs::read(&object).map_err(|error| {
        format!(
            "the kernel object {} cannot be read ({error}); `cargo xtask build-ebpf` builds it from source",
            object.display()
        )
    })?;
    let copy = out.join("heaptrace.bpf.o");
    fs::write(&copy, content).map_err(|error| format!("{}: {error}", copy.display()))
}
