//! A wrapper of rustc that makes a crate's symbols independent of the folder of its sources.
//!
//! Part of build-ebpf, which sets this program as cargo's `RUSTC_WRAPPER`. cargo gives each crate an
//! identity, which is a hash of its folder's path, and rustc puts it into the names of symbols. The wrapper
//! replaces it by a hash of the package, the crate's name and its features. It must not know what is built.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fmt::Write as _};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::process;

/// The variable that makes this program rustc's wrapper. It holds the target of the crates to change.
pub const VARIABLE: &str = "HEAPTRACE_STABLE_RUSTC_FOR";

/// Run as a wrapper if the environment says so. cargo passes rustc as a wrapper's first argument.
pub fn run_if_asked() -> Option<Result<ExitCode>> {
    let target = env::var_os(VARIABLE)?;
    Some(run(&target, env::args_os().skip(1).collect()))
}

fn run(target: &OsStr, words: Vec<OsString>) -> Result<ExitCode> {
    let (rustc, arguments) = words
        .split_first()
        .context("called as rustc's wrapper, without rustc: unset its variable")?;
    let mut command = Command::new(rustc);
    if is_for(target, arguments) {
        let package = Package::of_environment();
        command.args(stable(&package, arguments));
        // Last, because the last matching option applies. The folder's name depends on the registry.
        if let Some(crates) = package.registry() {
            let mut flag = OsString::from("--remap-path-prefix=");
            flag.push(crates);
            flag.push("=crates");
            command.arg(flag);
        }
    } else {
        command.args(arguments);
    }
    Ok(process::exit_code(process::status(&mut command)?).into())
}

/// The package of a crate, from cargo's variables.
struct Package {
    name: String,
    version: String,
    folder: PathBuf,
}

impl Package {
    fn of_environment() -> Self {
        let text = |name| env::var(name).unwrap_or_default();
        Self {
            name: text("CARGO_PKG_NAME"),
            version: text("CARGO_PKG_VERSION"),
            folder: text("CARGO_MANIFEST_DIR").into(),
        }
    }

    /// The folder with the unpacked packages of a registry, if this package is one of them.
    fn registry(&self) -> Option<&Path> {
        let folder = self.folder.parent()?;
        let is_one = folder.parent()?.ends_with("registry/src");
        is_one.then_some(folder)
    }
}

/// Whether a crate is compiled for this target. Crates that run during the build may keep their identity.
fn is_for(target: &OsStr, arguments: &[OsString]) -> bool {
    arguments
        .windows(2)
        .any(|pair| pair[0] == "--target" && pair[1] == target)
}

/// The arguments, with an identity from the package, the crate's name and its features.
fn stable(package: &Package, arguments: &[OsString]) -> Vec<OsString> {
    let mut hasher = Sha256::new();
    let mut take = |text: &[u8]| {
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text);
    };
    take(package.name.as_bytes());
    take(package.version.as_bytes());
    for pair in arguments.windows(2) {
        if ["--crate-name", "--crate-type", "--cfg"]
            .iter()
            .any(|name| pair[0] == *name)
        {
            take(pair[1].as_encoded_bytes());
        }
    }
    let mut identity = String::from("metadata=");
    for byte in &hasher.finalize()[..8] {
        // Writing to a string can't fail.
        let _ = write!(identity, "{byte:02x}");
    }
    let is_identity = |word: &OsString| word.as_encoded_bytes().starts_with(b"metadata=");
    let mut words = arguments.to_vec();
    for word in words.iter_mut().filter(|word| is_identity(word)) {
        *word = identity.clone().into();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    fn package(folder: &str, version: &str) -> Package {
        Package {
            name: "x".to_owned(),
            version: version.to_owned(),
            folder: folder.into(),
        }
    }

    /// Check that a crate's identity does not depend on cargo's hash of its folder, and differs for another
    /// version and other features.
    #[test]
    fn identities_do_not_depend_on_folders() {
        let call = |hash: &str, feature: &str| {
            words(&format!(
                "--crate-name x --cfg feature={feature} -C metadata={hash} -C extra-filename=-{hash}"
            ))
        };
        let identity = |version: &str, call: &[OsString]| {
            let words = stable(&package("/a", version), call);
            assert_eq!(words.len(), call.len());
            words[5].clone()
        };
        let first = identity("1.0.0", &call("1111", "a"));
        assert_eq!(first, identity("1.0.0", &call("2222", "a")));
        assert_ne!(first, identity("1.0.1", &call("1111", "a")));
        assert_ne!(first, identity("1.0.0", &call("1111", "b")));
    }

    /// Check that only crates of the target are changed, and that only packages of a registry have its folder
    /// remapped.
    #[test]
    fn other_crates_are_unchanged() {
        let target = OsStr::new("bpfel-unknown-none");
        assert!(is_for(target, &words("--target bpfel-unknown-none x.rs")));
        assert!(!is_for(target, &words("--crate-name build_script x.rs")));
        let kept = package("/home/me/.cargo/registry/src/mirror-12/x-1.0.0", "1.0.0");
        assert_eq!(
            kept.registry(),
            Some(Path::new("/home/me/.cargo/registry/src/mirror-12"))
        );
        assert_eq!(package("/work/heaptrace-ebpf", "1.0.0").registry(), None);
    }
}
