//! Runs heaptrace within limits, and records its exit status, output, time and memory.
//!
//! Part of hostile. It must not know which program is run.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::process;

/// The results of a run that ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) is_hung: bool,
    pub(super) time: Duration,
    /// The peak memory of the largest process.
    pub(super) peak_kib: u64,
    pub(super) output: String,
    pub(super) errors: String,
}

/// A run that has not ended yet.
pub(super) struct Running {
    child: Child,
    began: Instant,
    folder: std::path::PathBuf,
}

/// Starts a program in its own process group. Its output goes to files, so the program never waits for a
/// reader.
pub(super) fn start(command: &mut Command, folder: &Path) -> Result<Running> {
    // The kernel counts the peak of this process to that of the program, until the program is executed. A large report may have been read
    // before. SAFETY: gives free memory back, which nothing refers to.
    unsafe { libc::malloc_trim(0) };
    fs::write("/proc/self/clear_refs", "5").context("cannot reset the peak of memory")?;
    let file = |name: &str| {
        let path = folder.join(name);
        File::create(&path).with_context(|| format!("cannot write {}", path.display()))
    };
    command
        .stdin(Stdio::null())
        .stdout(file("stdout")?)
        .stderr(file("stderr")?)
        .process_group(0);
    let began = Instant::now();
    let child = command
        .spawn()
        .with_context(|| format!("cannot run `{}`", process::describe(command)))?;
    Ok(Running {
        child,
        began,
        folder: folder.to_owned(),
    })
}

impl Running {
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn signal(&self, signal: i32) {
        // SAFETY: a plain system call; the process is our child and was not waited for.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Waits for the end, and kills the program after the limit.
    pub(super) fn end(self, limit: Duration) -> Result<Ended> {
        let id = self.child.id() as i32;
        let mut is_hung = false;
        let (status, usage) = loop {
            let mut status = 0;
            // SAFETY: a struct of integers, for which zero is a value.
            let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
            // SAFETY: writes the two variables that it is given; the process is our child.
            let done = unsafe { libc::wait4(id, &raw mut status, libc::WNOHANG, &raw mut usage) };
            if done == id {
                break (status, usage);
            }
            if self.began.elapsed() > limit && !is_hung {
                is_hung = true;
                // SAFETY: a plain system call; the group is our child's.
                unsafe { libc::killpg(id, libc::SIGKILL) };
            }
            std::thread::sleep(Duration::from_millis(3));
        };
        let time = self.began.elapsed();
        // Kills processes that the target left behind. SAFETY: as above; an empty group gives an error
        // without any effect.
        unsafe { libc::killpg(id, libc::SIGKILL) };
        let read = |name: &str| {
            let bytes = fs::read(self.folder.join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Ok(Ended {
            status: ExitStatus::from_raw(status),
            is_hung,
            time,
            peak_kib: usage.ru_maxrss as u64,
            output: read("stdout"),
            errors: read("stderr"),
        })
    }
}

/// The arguments of a command line.
pub(super) fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}
