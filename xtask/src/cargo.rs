//! Calling cargo: the one that runs this task, for the host, and others, shielded from what that one set.
//!
//! Shared by all tasks that build. It must not know what is built.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::workspace;

/// The cargo that runs this task, in the repository's root.
pub fn host(subcommand: &str) -> Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.arg(subcommand).current_dir(workspace::root());
    command
}

/// The cargo at this path with the rustc at that one, and nothing of the outer cargo's settings.
///
/// Without this, the outer toolchain's name, flags and target folder would reach a compiler of another version.
pub fn shielded(cargo: &Path, rustc: &Path) -> Command {
    let mut command = Command::new(cargo);
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_outer_setting) {
            command.env_remove(name);
        }
    }
    command.env("RUSTC", rustc);
    // Empty, not removed: a wrapper may also stand in the user's configuration.
    command
        .env("RUSTC_WRAPPER", "")
        .env("RUSTC_WORKSPACE_WRAPPER", "");
    command
}

fn is_outer_setting(name: &str) -> bool {
    // How to reach the registry, and where its downloads are kept, holds for every cargo.
    const KEPT: [&str; 5] = [
        "CARGO_HTTP_",
        "CARGO_NET_",
        "CARGO_REGISTR",
        "CARGO_SOURCE_",
        "CARGO_TERM_",
    ];
    if name == "CARGO_HOME" || KEPT.iter().any(|kept| name.starts_with(kept)) {
        return false;
    }
    name == "CARGO"
        || name.starts_with("CARGO_")
        || name.starts_with("RUSTC")
        || name.starts_with("RUSTDOC")
        || name == "RUSTFLAGS"
        || name == "RUSTUP_TOOLCHAIN"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that toolchain, flags and target folder of the outer cargo are dropped, and that network settings stay.
    #[test]
    fn outer_settings_are_told_from_network_settings() {
        for name in [
            "CARGO",
            "CARGO_TARGET_DIR",
            "CARGO_ENCODED_RUSTFLAGS",
            "CARGO_BUILD_TARGET",
            "CARGO_PROFILE_RELEASE_LTO",
            "CARGO_MANIFEST_DIR",
            "RUSTC",
            "RUSTC_BOOTSTRAP",
            "RUSTFLAGS",
            "RUSTUP_TOOLCHAIN",
        ] {
            assert!(is_outer_setting(name), "{name}");
        }
        for name in [
            "CARGO_HOME",
            "CARGO_HTTP_PROXY",
            "CARGO_NET_OFFLINE",
            "CARGO_REGISTRIES_X_INDEX",
            "RUSTUP_HOME",
            "PATH",
        ] {
            assert!(!is_outer_setting(name), "{name}");
        }
    }
}
