//! Compares the Java frames of stacks with what the virtual machine itself says.
//!
//! Part of the harness.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::agreement::Agreement;
use crate::paths::workspace;
use crate::record::Heaptrace;
use crate::report::{Report, Site};

/// Class and method, file and line of each Java frame, innermost first.
pub type JavaStack = Vec<(String, String, u32)>;

/// The program's allocations of interest have at least this many bytes.
const LEAST: u64 = 100_000;

/// The method that makes them.
const POINT: &str = "Points.point";

/// Allocations and bytes, by Java stack.
type Amounts = BTreeMap<JavaStack, (u64, u64)>;

/// Compiles the fixture with this compiler, and returns the folder with its classes.
pub fn java_classes(compiler: &Path) -> Result<PathBuf> {
    let folder = workspace().join("target/fixtures/java");
    fs::create_dir_all(&folder)?;
    let source = workspace().join("tests/fixtures/java/Points.java");
    let compiled = Command::new(compiler)
        .args([
            "-nowarn",
            "-XDignore.symbol.file",
            "-source",
            "11",
            "-target",
            "11",
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
    let heaptrace = Heaptrace::tracing()?;
    let truth = heaptrace.path("truth.json");
    let times = times.to_string();
    let mut command = java.to_vec();
    command.extend(["-cp".as_ref(), classes.as_os_str(), "Points".as_ref()]);
    command.extend([truth.as_os_str(), OsStr::new(&times)]);
    let recording = heaptrace.record(options, &command)?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    let expected = counted(&truth)?;
    let (found, complete) = reported(&recording.report);
    let mut differences = Vec::new();
    let mut agreeing = 0;
    for (stack, amount) in &expected {
        match found.get(stack) {
            Some(other) if other == amount => agreeing += amount.0,
            other => differences.push(format!("{amount:?} there, {other:?} here: {stack:?}")),
        }
    }
    for (stack, amount) in &found {
        if !expected.contains_key(stack) {
            differences.push(format!("{amount:?} here alone: {stack:?}"));
        }
    }
    Ok(Agreement {
        allocations: expected.values().map(|(count, _)| count).sum(),
        agreeing,
        complete,
        differences,
        report: recording.report,
    })
}

/// The allocations as the program counted them.
fn counted(path: &Path) -> Result<Amounts> {
    let text = fs::read_to_string(path).context("the program has not written its counts")?;
    let counted: Vec<(JavaStack, u64, u64)> = serde_json::from_str(&text)?;
    let mut amounts = Amounts::new();
    for (stack, count, bytes) in counted {
        let amount = amounts.entry(comparable(stack)).or_default();
        amount.0 += count;
        amount.1 += bytes;
    }
    Ok(amounts)
}

/// The allocations as the report has them, and how many have a whole stack.
fn reported(report: &Report) -> (Amounts, u64) {
    let mut found = Amounts::new();
    let mut complete = 0;
    for site in &report.sites {
        let stack = java_stack(site);
        let is_large = site.totals.allocated_bytes >= LEAST * site.totals.allocations;
        let Some(point) = stack.iter().position(|(method, _, _)| method == POINT) else {
            continue;
        };
        if is_large {
            let stack = comparable(stack.into_iter().skip(point).collect());
            let amount = found.entry(stack).or_default();
            amount.0 += site.totals.allocations;
            amount.1 += site.totals.allocated_bytes;
            if site.stack_end == "complete" {
                complete += site.totals.allocations;
            }
        }
    }
    (found, complete)
}

/// A stack without what Java leaves out of its own: classes that it makes while it runs, whose frames it hides, and what calls a
/// method by reflection, which it replaces after some calls.
fn comparable(stack: JavaStack) -> JavaStack {
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
pub fn java_stack(site: &Site) -> JavaStack {
    let frames = site.stack.iter().filter(|frame| frame.language == "java");
    frames
        .map(|frame| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            let line = frame.line.unwrap_or(0);
            (text(&frame.function), text(&frame.file), line)
        })
        .collect()
}

/// The virtual machines of this machine: those of the distribution's packages and of others that are installed beside them.
pub fn java_machines() -> Vec<PathBuf> {
    let folders = fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten();
    let programs = folders.map(|folder| folder.path().join("bin/java"));
    let real = programs.filter_map(|program| program.canonicalize().ok());
    real.collect::<BTreeSet<_>>().into_iter().collect()
}
