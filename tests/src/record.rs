//! Runs heaptrace: the commands of its command line, each with what it needs around it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::child::{Child, Ended, run};
use crate::paths::heaptrace;
use crate::report::Report;
use crate::rights::require_root;
use crate::truth::{Truth, truths};

/// heaptrace, and a folder of its own for the files that it writes.
pub struct Heaptrace {
    folder: TempDir,
}

/// A finished `record`.
#[derive(Debug)]
pub struct Recording {
    /// How it ended, and what it and its target wrote.
    pub ended: Ended,
    /// What it found.
    pub report: Report,
    /// What the target says.
    pub truths: Vec<Truth>,
}

impl Recording {
    /// The truth of the one process with a role.
    pub fn truth(&self, role: &str) -> Result<&Truth> {
        let truth = self.truths.iter().find(|truth| truth.role == role);
        truth.with_context(|| {
            format!(
                "the fixture did not report as {role}; standard error:\n{}",
                self.ended.stderr
            )
        })
    }
}

impl Heaptrace {
    /// For tests that trace.
    pub fn tracing() -> Result<Self> {
        require_root()?;
        Self::offline()
    }

    /// For tests that need no rights.
    pub fn offline() -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("heaptrace-test-")
            .tempdir()?;
        Ok(Self { folder })
    }

    /// A path in its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The file that `record` writes here.
    pub fn data(&self) -> PathBuf {
        self.path("heaptrace.data")
    }

    /// heaptrace with these arguments, in its folder.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<Command> {
        let mut command = Command::new(heaptrace()?);
        command.args(arguments).current_dir(self.folder());
        // Who runs the tests by sudo is told of what the tests expect nobody to be told.
        command.env_remove("SUDO_USER");
        Ok(command)
    }

    /// Runs heaptrace with these arguments.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<Ended> {
        run(&mut self.command(arguments)?)
    }

    /// Starts `record -o FILE` with further arguments; exact, unless they say how to sample, and at any cost
    /// unless they say at which: what else the machine runs must not matter to a test.
    pub fn start_record<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<Child> {
        let mut command = self.command(&["record", "-o"])?;
        command.arg(self.data());
        let says = |option: &str| arguments.iter().any(|it| it.as_ref() == option);
        if !["--exact", "--sample", "--max-samples-per-second"]
            .into_iter()
            .any(says)
        {
            command.arg("--exact");
        }
        if says("--all") && !says("--max-overhead") {
            command.args(["--max-overhead", "off"]);
        }
        command.args(arguments);
        Child::spawn(&mut command)
    }

    /// The report of the data file.
    pub fn report(&self) -> Result<Report> {
        let ended = self
            .run(&[
                OsStr::new("report"),
                OsStr::new("--format"),
                OsStr::new("json"),
                self.data().as_os_str(),
            ])?
            .success()?;
        Report::parse(&ended.stdout)
    }

    /// Waits for a recorder to end, and reads what it wrote.
    pub fn finish(&self, recorder: Child) -> Result<Recording> {
        let ended = recorder.wait()?;
        ended.no_panic()?;
        let report = self.report().with_context(|| {
            format!(
                "record ended with {}; standard error:\n{}",
                ended.status, ended.stderr
            )
        })?;
        let truths = truths(&ended.stdout)?;
        Ok(Recording {
            ended,
            report,
            truths,
        })
    }

    /// `record [options] -- COMMAND`, whatever status the command has.
    pub fn record<S: AsRef<OsStr>>(&self, options: &[&str], command: &[S]) -> Result<Recording> {
        let mut arguments: Vec<&OsStr> = options.iter().map(OsStr::new).collect();
        arguments.push(OsStr::new("--"));
        arguments.extend(command.iter().map(AsRef::as_ref));
        self.finish(self.start_record(&arguments)?)
    }

    /// `record -- COMMAND` that must end with status 0 and lose nothing.
    pub fn record_all<S: AsRef<OsStr>>(&self, command: &[S]) -> Result<Recording> {
        let recording = self.record(&[], command)?;
        anyhow::ensure!(
            recording.ended.code() == 0,
            "record ended with {}:\n{}",
            recording.ended.status,
            recording.ended.stderr
        );
        recording.report.check_nothing_lost()?;
        Ok(recording)
    }
}
