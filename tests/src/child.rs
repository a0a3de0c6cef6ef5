//! A child process with collected output and a time limit on every wait.
//!
//! Part of the harness. The child's process group is killed when its handle is dropped.

use std::io::{Read, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::until::until;

/// Longer than any child takes, also on a loaded machine with two cores.
const LIMIT: Duration = Duration::from_secs(90);

/// The bytes read from a pipe so far.
#[derive(Default)]
pub(crate) struct Collected {
    bytes: Vec<u8>,
    /// How many of them [`Child::line`] has returned.
    taken: usize,
    closed: bool,
}

#[derive(Clone, Default)]
pub(crate) struct Collector(Arc<(Mutex<Collected>, Condvar)>);

impl Collector {
    pub(crate) fn reading(mut pipe: impl Read + Send + 'static) -> Self {
        let collector = Self::default();
        let shared = collector.clone();
        thread::spawn(move || {
            let mut buffer = [0; 8192];
            loop {
                let count = pipe.read(&mut buffer).unwrap_or(0);
                let (collected, changed) = &*shared.0;
                let mut collected = collected.lock().unwrap_or_else(PoisonError::into_inner);
                collected
                    .bytes
                    .extend_from_slice(buffer.get(..count).unwrap_or_default());
                collected.closed = count == 0;
                changed.notify_all();
                if count == 0 {
                    return;
                }
            }
        });
        collector
    }

    /// Waits until `found` returns something, the pipe is closed, or the limit has passed.
    fn wait<T>(
        &self,
        limit: Duration,
        mut found: impl FnMut(&mut Collected) -> Option<T>,
    ) -> Option<T> {
        let deadline = Instant::now() + limit;
        let (collected, changed) = &*self.0;
        let mut collected = collected.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let result = found(&mut collected);
            let left = deadline.saturating_duration_since(Instant::now());
            if result.is_some() || collected.closed || left.is_zero() {
                return result;
            }
            collected = changed
                .wait_timeout(collected, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    pub(crate) fn text(&self) -> String {
        let collected = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&collected.bytes).into_owned()
    }
}

/// How a child ended, and its output.
#[derive(Debug)]
pub struct Ended {
    /// The exit status.
    pub status: ExitStatus,
    /// The whole standard output.
    pub stdout: String,
    /// The whole standard error.
    pub stderr: String,
}

impl Ended {
    /// The status as a shell shows it: 128 + n for signal n.
    pub fn code(&self) -> i32 {
        self.status
            .code()
            .unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    /// Fails unless the status is 0.
    pub fn success(self) -> Result<Self> {
        self.exits(0)
    }

    /// Fails unless it exited with this status. A child killed by a signal did not.
    pub fn exits(self, code: i32) -> Result<Self> {
        ensure!(
            self.status.code() == Some(code),
            "{} instead of exit status {code}; standard error:\n{}\nstandard output:\n{}",
            self.status,
            self.stderr,
            self.stdout
        );
        Ok(self)
    }

    /// Fails unless it failed as a tool should: with an exit status that is no panic's, and with a short message on
    /// standard error.
    pub fn fails_clearly(self) -> Result<Self> {
        let code = self.status.code();
        ensure!(
            code.is_some_and(|code| code != 0 && code != 101),
            "{} instead of an error; standard error:\n{}",
            self.status,
            self.stderr
        );
        self.no_panic()?;
        let lines = self.stderr.lines().count();
        ensure!(
            (1..=6).contains(&lines),
            "the error takes {lines} lines:\n{}",
            self.stderr
        );
        Ok(self)
    }

    /// Fails if standard error shows a panic.
    pub fn no_panic(&self) -> Result<()> {
        ensure!(
            !self.stderr.contains("panicked") && !self.stderr.contains("RUST_BACKTRACE"),
            "panicked:\n{}",
            self.stderr
        );
        Ok(())
    }
}

/// A running child in a process group of its own.
pub struct Child {
    name: String,
    child: std::process::Child,
    stdout: Collector,
    stderr: Collector,
}

impl Child {
    /// Starts a command with all three standard streams piped.
    pub fn spawn(command: &mut Command) -> Result<Self> {
        let name = format!("{command:?}");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let stdout = child.stdout.take().context("no pipe")?;
        let stderr = child.stderr.take().context("no pipe")?;
        Ok(Self {
            name,
            child,
            stdout: Collector::reading(stdout),
            stderr: Collector::reading(stderr),
        })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line of standard output.
    pub fn line(&mut self) -> Result<String> {
        let line = self.stdout.wait(LIMIT, |collected| {
            let rest = collected.bytes.get(collected.taken..)?;
            let len = rest.iter().position(|byte| *byte == b'\n')?;
            let line = String::from_utf8_lossy(rest.get(..len)?).into_owned();
            collected.taken += len + 1;
            Some(line)
        });
        line.with_context(|| {
            format!(
                "{} wrote no further line; standard error:\n{}",
                self.name,
                self.stderr.text()
            )
        })
    }

    /// Its standard error so far.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Writes an empty line to its standard input, for which fixtures wait.
    pub fn go(&mut self) -> Result<()> {
        let stdin = self.child.stdin.as_mut().context("its input is closed")?;
        stdin.write_all(b"\n")?;
        stdin.flush()?;
        Ok(())
    }

    /// Whether it is still running.
    pub fn running(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Sends a signal to the child alone.
    pub fn signal(&self, signal: i32) -> Result<()> {
        send(i32::try_from(self.pid())?, signal)
    }

    /// Sends a signal to the child's process group, as a terminal does.
    pub fn signal_group(&self, signal: i32) -> Result<()> {
        send(-i32::try_from(self.pid())?, signal)
    }

    /// Closes its standard input, and waits for its end.
    pub fn wait(mut self) -> Result<Ended> {
        drop(self.child.stdin.take());
        let mut status = None;
        until("the child's end", LIMIT, || {
            status = self.child.try_wait()?;
            Ok(status.is_some())
        })
        .with_context(|| {
            format!(
                "{} did not end; standard error:\n{}\nstandard output:\n{}",
                self.name,
                self.stderr.text(),
                self.stdout.text()
            )
        })?;
        let status = status.context("no status")?;
        // Processes that inherited the pipes may keep them open. Only the child's own output matters.
        for pipe in [&self.stdout, &self.stderr] {
            pipe.wait(Duration::from_secs(2), |_| None::<()>);
        }
        Ok(Ended {
            status,
            stdout: self.stdout.text(),
            stderr: self.stderr.text(),
        })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // The group outlives its leader while it has members. An error means that it has none.
        let _ = self.signal_group(libc::SIGKILL);
        let _ = self.child.wait();
    }
}

/// Whether a process is gone, or is a zombie.
pub fn has_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    // The state follows the name, which may itself have parentheses.
    stat.map_or(true, |stat| {
        let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
        state.is_some_and(|rest| rest.starts_with(['Z', 'X']))
    })
}

/// Sends a signal to a process, or with a negative number to a process group.
pub fn send(target: i32, signal: i32) -> Result<()> {
    // SAFETY: kill takes plain numbers and touches no memory of ours.
    let result = unsafe { libc::kill(target, signal) };
    if result != 0 {
        return Err(std::io::Error::last_os_error())
            .with_context(|| format!("cannot send signal {signal} to {target}"));
    }
    Ok(())
}

/// Runs a command until it ends.
pub fn run(command: &mut Command) -> Result<Ended> {
    Child::spawn(command)?.wait()
}
