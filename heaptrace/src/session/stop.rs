//! Waits for the end of a run: a signal, the duration, or the end of the last target.
//!
//! Part of the session. Must not know what happens at the end.

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::Target;
use crate::sys;

/// How long a command may take to end after the signal that ends the run.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// SIGINT, SIGTERM or SIGHUP, or the observer asks for it.
    Signal,
    /// `--duration` is over.
    Time,
    /// The last target ended.
    Targets,
    /// The observer failed: the updates can't be shown or written any more.
    Failed,
}

/// Waits for the end of a run.
pub(super) struct Stopper {
    signals: [Signal; 3],
    duration: Option<Duration>,
    deadline: Option<tokio::time::Instant>,
    /// Descriptors of the targets, readable when they end.
    targets: Vec<AsyncFd<OwnedFd>>,
    /// A launched command, which gets SIGTERM and SIGHUP passed on.
    command: Option<u32>,
}

impl Stopper {
    pub(super) fn new(duration: Option<Duration>) -> Result<Self> {
        let listen = |kind| signal(kind).context("can't listen for signals");
        Ok(Self {
            signals: [
                listen(SignalKind::interrupt())?,
                listen(SignalKind::terminate())?,
                listen(SignalKind::hangup())?,
            ],
            duration,
            deadline: None,
            targets: Vec::new(),
            command: None,
        })
    }

    /// Begins to watch the targets and the time.
    pub(super) fn watch(&mut self, target: &Target, child: Option<&Child>) -> Result<()> {
        self.deadline = self
            .duration
            .map(|duration| tokio::time::Instant::now() + duration);
        self.command = child.map(Child::id);
        let pids: &[u32] = match target {
            Target::Pids(pids) => pids,
            Target::Command(_) => self.command.as_slice(),
            Target::All => &[],
        };
        for pid in pids {
            match pidfd_open(*pid) {
                Ok(fd) => self.targets.push(sys::when_readable(fd)?),
                // It has ended already; if it was the last target, the run ends at once.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) => return Err(error).context(format!("can't watch process {pid}")),
            }
        }
        if matches!(target, Target::All) {
            return Ok(());
        }
        if self.targets.is_empty() {
            self.deadline = Some(tokio::time::Instant::now());
        }
        Ok(())
    }

    /// Waits for the end. The future may be dropped, and this called again.
    pub(super) async fn wait(&mut self) -> Stop {
        let [interrupt, terminate, hangup] = &mut self.signals;
        let deadline = self.deadline;
        let time = async move {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let targets = &self.targets;
        let ends = async {
            if targets.is_empty() {
                std::future::pending::<()>().await;
            }
            for target in targets {
                // A valid descriptor gives no error, and an error would only end the run early.
                let _ = target
                    .readable()
                    .await
                    .map(|mut guard| guard.retain_ready());
            }
        };
        let passed_on = tokio::select! {
            _ = interrupt.recv() => None, // the terminal sends it to the command, too
            _ = terminate.recv() => Some(libc::SIGTERM),
            _ = hangup.recv() => Some(libc::SIGHUP),
            () = time => return Stop::Time,
            () = ends => return Stop::Targets,
        };
        if let (Some(signal), Some(pid)) = (passed_on, self.command) {
            // SAFETY: a plain system call; the pid belongs to a child that was not waited for.
            unsafe { libc::kill(pid as libc::pid_t, signal) };
        }
        Stop::Signal
    }
}

/// Waits for the end of a launched command, if it is about to end.
pub(super) fn reap(
    child: Option<&mut Child>,
    stop: Stop,
    notes: &mut Vec<String>,
) -> Option<ExitStatus> {
    let child = child?;
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) => {}
            Err(error) => {
                notes.push(format!(
                    "the exit status of the command is not known: {error}"
                ));
                return None;
            }
        }
        let is_ending = matches!(stop, Stop::Signal | Stop::Targets);
        if !is_ending || begin.elapsed() > PATIENCE {
            notes.push(format!(
                "the command (pid {}) is still running, and is no longer traced",
                child.id()
            ));
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Restores the default action of Ctrl-C, so that the user can interrupt long work after the run.
pub(super) fn restore_interrupt() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: restores the default action.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: a plain system call. The descriptor is close-on-exec by itself.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}
