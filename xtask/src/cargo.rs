//! Runs cargo: the one that runs this task, and other versions, shielded from the settings of the first.
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

/// The cargo and the rustc at these paths, without the settings of the outer cargo.
///
/// Otherwise the outer toolchain's name, flags and target folder would affect a compiler of another version.
pub fn shielded(cargo: &Path, rustc: &Path) -> Command {
    let mut command = Command::new(cargo);
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_outer_setting) {
            command.env_remove(name);
        }
    }
    command.env("RUSTC", rustc);
    // Empty instead of removed, because the user's configuration may set a wrapper too.
    command
        .env("RUSTC_WRAPPER", "")
        .env("RUSTC_WORKSPACE_WRAPPER", "");
    command
}

fn is_outer_setting(name: &str) -> bool {
    // Network settings and the download cache apply to every cargo.
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

    /// Check that toolchain, flags and target folder of the outer cargo are dropped, and that network
    /// settings stay.
    #[test]
    fn outer_settings_are_dropped_and_network_settings_kept() {
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
