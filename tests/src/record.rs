//! Runs heaptrace's commands, and reads their results.
//!
//! Part of the harness. It knows heaptrace's command line and files, and nothing of its inside.

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

/// heaptrace, with a temporary folder for its files.
pub struct Heaptrace {
    folder: TempDir,
}

/// A finished `record`.
#[derive(Debug)]
pub struct Recording {
    /// Its status, and the output of heaptrace and its target.
    pub ended: Ended,
    /// The report of its data file.
    pub report: Report,
    /// The counts that the target reported.
    pub truths: Vec<Truth>,
}

impl Recording {
    /// The counts of the process with a role.
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
    /// For tests that trace. Fails unless the test runs as root.
    pub fn tracing() -> Result<Self> {
        require_root()?;
        Self::offline()
    }

    /// For tests that don't trace, and need no rights.
    pub fn offline() -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("heaptrace-test-")
            .tempdir()?;
        Ok(Self { folder })
    }

    /// The path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The path of the data file that `record` writes.
    pub fn data(&self) -> PathBuf {
        self.path("heaptrace.data")
    }

    /// A command that runs heaptrace in the folder.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<Command> {
        let mut command = Command::new(heaptrace()?);
        command.args(arguments).current_dir(self.folder());
        // Under sudo, heaptrace prints hints for the invoking user, which the tests don't expect.
        command.env_remove("SUDO_USER");
        Ok(command)
    }

    /// Runs heaptrace in the folder.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<Ended> {
        run(&mut self.command(arguments)?)
    }

    /// Starts `record -o FILE` with further arguments. Unless they say otherwise, the run is exact, has no limit of
    /// overhead, because the machine's load must not change a test's numbers, and leaves out mapped memory, because
    /// fixtures count their blocks.
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
        if !says("--mmap") && !says("--no-mmap") {
            command.arg("--no-mmap");
        }
        command.args(arguments);
        Child::spawn(&mut command)
    }

    /// Reads the report of the data file.
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

    /// Waits for a recorder's end, and reads its data file.
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

    /// Runs `record [options] -- COMMAND`. Any status of the command will do.
    pub fn record<S: AsRef<OsStr>>(&self, options: &[&str], command: &[S]) -> Result<Recording> {
        let mut arguments: Vec<&OsStr> = options.iter().map(OsStr::new).collect();
        arguments.push(OsStr::new("--"));
        arguments.extend(command.iter().map(AsRef::as_ref));
        self.finish(self.start_record(&arguments)?)
    }

    /// Runs `record -- COMMAND`. Fails unless it ends with status 0 and loses nothing.
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
