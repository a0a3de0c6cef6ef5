//! The parts that every case shares: heaptrace, the hostile program, a folder, and the checks after each run.
//!
//! Part of hostile. It must not know any case.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::ended::{Ended, Running, start};
use crate::{process, workspace};

/// The time limit of a run in seconds, unless its case has another one. A plain run takes a fifth of a
/// second, and much longer on a busy machine.
pub(super) const SECONDS: u64 = 90;

/// The memory limit in MiB of any heaptrace process, unless a case has another one.
pub(super) const MIB: u64 = 400;

/// The programs that all cases use, built once.
pub(super) struct Suite {
    heaptrace: PathBuf,
    pub(super) program: PathBuf,
    folder: PathBuf,
}

/// A case that is running.
pub(super) struct CaseRun<'z> {
    pub(super) suite: &'z Suite,
    pub(super) folder: PathBuf,
    pub(super) seconds: u64,
    pub(super) mib: u64,
    runs: RefCell<(Duration, u64)>,
}

impl Suite {
    pub(super) fn build() -> Result<Self> {
        let folder = workspace::target_dir().join("hostile");
        if folder.exists() {
            fs::remove_dir_all(&folder)
                .with_context(|| format!("cannot empty {}", folder.display()))?;
        }
        fs::create_dir_all(&folder)?;
        let source = folder.join("zoo.c");
        fs::write(&source, include_str!("zoo.c"))?;
        let program = folder.join("zoo");
        let mut command = Command::new("cc");
        command.args(["-O1", "-g", "-fno-omit-frame-pointer", "-pthread", "-o"]);
        command.arg(&program).arg(&source).arg("-ldl");
        process::run(&mut command)?;
        Ok(Self {
            heaptrace: workspace::heaptrace_binary(),
            program,
            folder,
        })
    }

    pub(super) fn case_run(&self, name: &str, seconds: u64, mib: u64) -> Result<CaseRun<'_>> {
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder)?;
        Ok(CaseRun {
            suite: self,
            folder,
            seconds,
            mib,
            runs: RefCell::default(),
        })
    }
}

impl CaseRun<'_> {
    /// The longest time and the peak memory in KiB of the runs so far.
    pub(super) fn spent(&self) -> (Duration, u64) {
        *self.runs.borrow()
    }

    /// The path of a file of this case.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The path of the data file.
    pub(super) fn data(&self) -> PathBuf {
        self.file("out.data")
    }

    /// Starts heaptrace.
    pub(super) fn start(&self, arguments: &[OsString]) -> Result<Running> {
        let mut command = Command::new(&self.suite.heaptrace);
        start(
            command.args(arguments).current_dir(&self.folder),
            &self.folder,
        )
    }

    /// Waits for heaptrace, and makes the checks that hold for every run.
    pub(super) fn end(&self, running: Running) -> Result<Ended> {
        let ended = running.end(Duration::from_secs(self.seconds))?;
        let mut runs = self.runs.borrow_mut();
        runs.0 = runs.0.max(ended.time);
        runs.1 = runs.1.max(ended.peak_kib);
        drop(runs);
        ensure!(!ended.is_hung, "hung: no end within {} s", self.seconds);
        ensure!(
            ended.peak_kib <= self.mib << 10,
            "used {} MiB of memory, and {} are allowed",
            ended.peak_kib >> 10,
            self.mib
        );
        if ended.status.code().is_none() {
            bail!("died: {}: {}", ended.status, first_line(&ended.errors));
        }
        ensure!(
            !ended.errors.contains("panicked"),
            "panicked: {}",
            first_line(&ended.errors)
        );
        for text in [&ended.errors, &ended.output] {
            ensure!(!text.contains('\x1b'), "an escape sequence was printed");
        }
        Ok(ended)
    }

    /// Runs heaptrace with these arguments to its end.
    pub(super) fn run(&self, arguments: &[OsString]) -> Result<Ended> {
        self.end(self.start(arguments)?)
    }

    /// Records a mode of the hostile program.
    pub(super) fn record(&self, options: &[&str], mode: &[&OsStr]) -> Result<Ended> {
        let mut arguments: Vec<OsString> = vec!["record".into(), "-o".into(), self.data().into()];
        arguments.extend(options.iter().map(OsString::from));
        arguments.extend(["--".into(), self.suite.program.clone().into()]);
        arguments.extend(mode.iter().map(OsString::from));
        self.run(&arguments)
    }

    /// The data file's report as JSON. The text report must be printable as well.
    pub(super) fn report(&self) -> Result<Value> {
        let text = self.run(&["report".into(), self.data().into()])?;
        ensure!(
            text.status.success(),
            "report failed: {}",
            first_line(&text.errors)
        );
        let mut arguments: Vec<OsString> = super::ended::words(&["report", "--format", "json"]);
        arguments.push(self.data().into());
        let json = self.run(&arguments)?;
        serde_json::from_str(&json.output).context("the report is not JSON")
    }

    /// Records a mode. The run must end normally and lose none of the mode's allocations.
    pub(super) fn traced(&self, mode: &[&OsStr], at_least: u64) -> Result<Value> {
        let ended = self.record(&[], mode)?;
        self.whole(&ended, at_least)
    }

    /// The report of a run that ended normally and lost none of at least so many allocations.
    pub(super) fn whole(&self, ended: &Ended, at_least: u64) -> Result<Value> {
        ensure!(
            ended.status.code() == Some(0),
            "{}: {}",
            ended.status,
            first_line(&ended.errors)
        );
        let report = self.report()?;
        ensure!(report["end"] == "orderly", "the run did not end normally");
        let seen = report["totals"]["allocations"].as_u64().unwrap_or(0);
        let lost = lost(&report);
        ensure!(
            seen + lost >= at_least,
            "lost silently: of {at_least} allocations, {seen} were seen and {lost} were counted as lost"
        );
        Ok(report)
    }
}

/// The number of losses in a report.
pub(super) fn lost(report: &Value) -> u64 {
    let lost = report["quality"]["lost"].as_object();
    lost.into_iter()
        .flatten()
        .filter_map(|(_, count)| count.as_u64())
        .sum()
}

/// The names of all functions in a report's stacks.
pub(super) fn functions(report: &Value) -> Vec<String> {
    let sites = report["sites"].as_array().into_iter().flatten();
    sites
        .flat_map(|site| site["stack"].as_array().into_iter().flatten())
        .filter_map(|frame| frame["function"].as_str().map(str::to_owned))
        .collect()
}

/// The first line that is not empty.
pub(super) fn first_line(text: &str) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty());
    line.unwrap_or("no message").chars().take(160).collect()
}

/// Converts a path to an argument.
pub(super) fn word(path: &Path) -> &OsStr {
    path.as_os_str()
}
