//! Compares the Python frames of stacks with what the interpreter itself says.
//!
//! Part of the harness.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::paths::workspace;
use crate::record::Heaptrace;
use crate::report::{Report, Site};

/// Function, file and line of each Python frame, innermost first.
pub type PythonStack = Vec<(String, String, u32)>;

/// The program's allocations of interest have at least this many bytes.
const LEAST: u64 = 100_000;

/// Allocations and bytes, by Python stack.
type Amounts = BTreeMap<PythonStack, (u64, u64)>;

/// How far the stacks of a run agree with the interpreter's own.
#[derive(Debug)]
pub struct Agreement {
    /// The allocations that the program counted.
    pub allocations: u64,
    /// Those that the report has with the interpreter's own stack.
    pub agreeing: u64,
    /// Those of which the stack of machine code is whole.
    pub complete: u64,
    /// Differing stacks, as text.
    pub differences: Vec<String>,
    /// The report.
    pub report: Report,
}

impl Agreement {
    /// The share of allocations that agree.
    pub fn share(&self) -> f64 {
        self.agreeing as f64 / self.allocations as f64
    }
}

/// Allocates from all kinds of Python code under this interpreter, so many times, and compares each stack. The interpreter
/// is started by the command's words, the options are those of `record`.
pub fn python_agreement(interpreter: &[&OsStr], options: &[&str], times: u32) -> Result<Agreement> {
    let heaptrace = Heaptrace::tracing()?;
    let truth = heaptrace.path("truth.json");
    let script = workspace().join("tests/fixtures/python/points.py");
    let times = times.to_string();
    let mut command = interpreter.to_vec();
    command.extend([script.as_os_str(), truth.as_os_str(), OsStr::new(&times)]);
    let recording = heaptrace.record(options, &command)?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    let expected = counted(&truth)?;
    let (found, complete) = reported(&recording.report, &script);
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
    let counted: Vec<(PythonStack, u64, u64)> = serde_json::from_str(&text)?;
    let counted = counted.into_iter();
    Ok(counted
        .map(|(stack, count, bytes)| (stack, (count, bytes)))
        .collect())
}

/// The allocations as the report has them, and how many have a whole stack.
fn reported(report: &Report, script: &Path) -> (Amounts, u64) {
    let mut found = Amounts::new();
    let mut complete = 0;
    for site in &report.sites {
        let stack = python_stack(site);
        // The interpreter itself allocates there, too, but no large blocks.
        let is_large = site.totals.allocated_bytes >= LEAST * site.totals.allocations;
        let is_point = is_large
            && stack.first().is_some_and(|(function, file, _)| {
                function == "point" && Path::new(file) == script
            });
        if is_point {
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

/// The Python frames of a site.
pub fn python_stack(site: &Site) -> PythonStack {
    let frames = site.stack.iter().filter(|frame| frame.language == "python");
    frames
        .map(|frame| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            let line = frame.line.unwrap_or(0);
            (text(&frame.function), text(&frame.file), line)
        })
        .collect()
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
