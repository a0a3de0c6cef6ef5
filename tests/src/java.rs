//! Compares the Java frames of stacks with what the virtual machine itself says.
//!
//! Part of the harness.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::agreement::{Agreement, LanguageStack, agreement, language_stack};
use crate::paths::{target, workspace};
use crate::report::Site;

/// The method that makes them.
const POINT: &str = "Points.point";

/// Compiles the fixture with this compiler, and returns the folder with its classes.
pub fn java_classes(compiler: &Path) -> Result<PathBuf> {
    let folder = workspace().join("target/fixtures/java");
    fs::create_dir_all(&folder)?;
    let source = workspace().join("tests/fixtures/java/Points.java");
    let compiled = Command::new(compiler)
        .args([
            "-nowarn",
            "-XDignore.symbol.file",
            // The oldest version that is supported.
            "-source",
            "8",
            "-target",
            "8",
            "-d",
        ])
        .args([folder.as_os_str(), source.as_os_str()])
        .output()
        .with_context(|| format!("{} does not start", compiler.display()))?;
    let errors = String::from_utf8_lossy(&compiled.stderr);
    ensure!(compiled.status.success(), "javac: {errors}");
    Ok(folder)
}

/// Allocates from all kinds of Java code under this virtual machine, so many times, and compares each stack. The virtual machine
/// is started by the command's words, the options are those of `record`.
pub fn java_agreement(java: &[&OsStr], options: &[&str], times: u32) -> Result<Agreement> {
    let classes = java_classes(Path::new("/usr/bin/javac"))?;
    let mut command = java.to_vec();
    command.extend(["-cp".as_ref(), classes.as_os_str(), "Points".as_ref()]);
    let stack_of = |site: &Site| {
        let mut stack = java_stack(site);
        let point = stack.iter().position(|(method, _, _)| method == POINT)?;
        Some(comparable(stack.split_off(point)))
    };
    agreement(&command, options, times, stack_of, comparable)
}

/// A stack without what Java leaves out of its own: classes that it makes while it runs, whose frames it hides, and what calls a
/// method by reflection, which it replaces after some calls.
fn comparable(stack: LanguageStack) -> LanguageStack {
    let is_kept = |(method, _, _): &(String, String, u32)| {
        !method.contains("$$Lambda")
            && !method.starts_with("java.lang.invoke.")
            && !method.starts_with("jdk.internal.reflect.")
            && !method.starts_with("java.lang.reflect.")
            && method != "java.lang.Thread.runWith"
    };
    stack.into_iter().filter(is_kept).collect()
}

/// The Java frames of a site.
pub fn java_stack(site: &Site) -> LanguageStack {
    language_stack(site, "java")
}

/// The virtual machines of this machine: those of the distribution's packages, of others that are installed beside them, and those that
/// have been put into `target/java`, each as a folder with `bin/java`.
pub fn java_machines() -> Vec<PathBuf> {
    let folders = [PathBuf::from("/usr/lib/jvm"), target().join("java")];
    let folders = folders.iter().flat_map(fs::read_dir).flatten().flatten();
    let programs = folders.map(|folder| folder.path().join("bin/java"));
    let real = programs.filter_map(|program| program.canonicalize().ok());
    real.collect::<BTreeSet<_>>().into_iter().collect()
}
