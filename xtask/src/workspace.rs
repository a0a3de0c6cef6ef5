//! The paths of the repository.
//!
//! Shared by all tasks. It knows paths and runs nothing.

use std::path::PathBuf;
use std::{env, fs};

use anyhow::{Context, Result};
use serde::Deserialize;

/// The repository's root.
pub fn root() -> PathBuf {
    // Cargo sets the variable for `cargo run` and `cargo test`, so this also works after the checkout was
    // moved.
    let manifest =
        env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let mut path = PathBuf::from(manifest);
    path.pop();
    path
}

/// The build folder, chosen by the same rules as cargo's.
pub fn target_dir() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(path) => root().join(path),
        None => root().join("target"),
    }
}

/// The suites of `tests` that need root, by their names.
pub fn root_suites() -> Result<Vec<String>> {
    #[derive(Deserialize)]
    struct Manifest {
        test: Vec<Suite>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Suite {
        name: String,
        required_features: Vec<String>,
    }
    let path = root().join("tests/Cargo.toml");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let manifest: Manifest = toml::from_str(&text).with_context(|| path.display().to_string())?;
    let of_root = |it: &Suite| it.required_features.iter().any(|name| name == "root");
    let suites = manifest.test.into_iter().filter(of_root);
    Ok(suites.map(|it| it.name).collect())
}

/// The path of the committed kernel object.
pub fn committed_object() -> PathBuf {
    root().join("heaptrace/bpf/heaptrace.bpf.o")
}

/// The kernel program's package, which is a workspace of its own.
pub fn ebpf_dir() -> PathBuf {
    root().join("heaptrace-ebpf")
}

/// The path of heaptrace's release build.
pub fn heaptrace_binary() -> PathBuf {
    target_dir().join("release/heaptrace")
}
