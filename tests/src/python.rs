//! Compares the Python frames of stacks with what the interpreter itself says.
//!
//! Part of the harness.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::agreement::{Agreement, LanguageStack, agreement, language_stack};
use crate::paths::workspace;
use crate::report::Site;

/// Allocates from all kinds of Python code under this interpreter, so many times, and compares each stack. The interpreter
/// is started by the command's words, the options are those of `record`.
pub fn python_agreement(interpreter: &[&OsStr], options: &[&str], times: u32) -> Result<Agreement> {
    let script = workspace().join("tests/fixtures/python/points.py");
    let mut command = interpreter.to_vec();
    command.push(script.as_os_str());
    let stack_of = |site: &Site| {
        let stack = python_stack(site);
        let is_point = stack
            .first()
            .is_some_and(|(function, file, _)| function == "point" && Path::new(file) == script);
        is_point.then_some(stack)
    };
    agreement(&command, options, times, stack_of, |stack| stack)
}

/// The Python frames of a site.
pub fn python_stack(site: &Site) -> LanguageStack {
    language_stack(site, "python")
}

/// The interpreters of this machine that heaptrace knows: the system's own, and those of pyenv.
pub fn python_interpreters() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from("/usr/bin"), PathBuf::from("/usr/local/bin")];
    let versions = std::env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
    let versions = versions.map(|root| root.join("versions"));
    if let Some(versions) = versions.and_then(|it| fs::read_dir(it).ok()) {
        folders.extend(versions.flatten().map(|it| it.path().join("bin")));
    }
    folders.sort();
    for folder in folders {
        let interpreters = (8..=13).map(|minor| folder.join(format!("python3.{minor}")));
        found.extend(interpreters.filter(|path| path.exists()));
    }
    found
}
