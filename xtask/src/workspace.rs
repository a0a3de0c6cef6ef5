//! The paths of the repository.
//!
//! Shared by all tasks. It knows paths and runs nothing.

use std::env;
use std::path::PathBuf;

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
