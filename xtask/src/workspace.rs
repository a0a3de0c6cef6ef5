//! Where things stand in the repository.
//!
//! Shared by all tasks. It knows paths and runs nothing.

use std::env;
use std::path::PathBuf;

/// The repository's root.
pub fn root() -> PathBuf {
    // Cargo sets the variable for `cargo run` and `cargo test`, so a moved checkout is found where it is now.
    let manifest =
        env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let mut path = PathBuf::from(manifest);
    path.pop();
    path
}

/// The folder that builds write to, as cargo itself would choose it.
pub fn target_dir() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(path) => root().join(path),
        None => root().join("target"),
    }
}

/// The kernel object as it is committed.
pub fn committed_object() -> PathBuf {
    root().join("heaptrace/bpf/heaptrace.bpf.o")
}

/// The kernel program's package, a workspace of its own.
pub fn ebpf_dir() -> PathBuf {
    root().join("heaptrace-ebpf")
}

/// The release build of heaptrace.
pub fn heaptrace_binary() -> PathBuf {
    target_dir().join("release/heaptrace")
}
