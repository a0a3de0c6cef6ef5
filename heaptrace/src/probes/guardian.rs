//! A small process that cleans up after an agent that was killed.
//!
//! Stage: probes. Programs, links and perf events go with their last descriptor, but definitions of
//! uprobe events stay. The guardian holds the reading end of a pipe whose writing end only the
//! agent has; when that closes, whatever the reason, it removes the agent's definitions. It also
//! lends its process to perf events that must belong to one that allocates nothing.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use super::tracefs::Tracefs;
use crate::sys;

/// How long the guardian waits for the kernel to let go of the agent's probes.
const PATIENCE: Duration = Duration::from_secs(30);

/// The agent's end: while it is open, the guardian sleeps.
pub struct Guardian {
    /// Its process id.
    pub pid: u32,
    _alive: OwnedFd,
}

impl Guardian {
    /// Starts the guardian.
    ///
    /// Must be called while this process has only one thread: the guardian is a fork of it.
    pub fn start(tracefs: &Tracefs) -> io::Result<Self> {
        let (read, write) = sys::pipe()?;
        let (pid_read, pid_write) = sys::pipe()?;
        let agent = std::process::id();
        // SAFETY: this process has one thread; the child never returns from this function.
        match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()),
            0 => {
                drop(write);
                // SAFETY: a second fork makes the guardian a child of init, so that nobody has to
                // wait for it.
                match unsafe { libc::fork() } {
                    0 => guard(&read, tracefs, agent),
                    guardian => {
                        let _ = File::from(pid_write).write_all(&guardian.to_ne_bytes());
                    }
                }
                // SAFETY: ends this child without running the agent's exit handlers.
                unsafe { libc::_exit(0) };
            }
            child => {
                let mut status = 0;
                // SAFETY: waits for the child just forked.
                unsafe { libc::waitpid(child, &raw mut status, 0) };
            }
        }
        drop(pid_write);
        let mut pid = [0; 4];
        File::from(pid_read).read_exact(&mut pid)?;
        match i32::from_ne_bytes(pid) {
            1.. => Ok(Self {
                pid: u32::from_ne_bytes(pid),
                _alive: write,
            }),
            _ => Err(io::Error::other("no process could be forked")),
        }
    }
}

fn guard(alive: &OwnedFd, tracefs: &Tracefs, agent: u32) {
    // SAFETY: plain system calls on this process alone. The signals that end a run, or ask
    // something of it, are for the agent; the guardian must outlive it, also where a whole process group gets them.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"heaptrace-guard".as_ptr());
        for signal in [
            libc::SIGINT,
            libc::SIGTERM,
            libc::SIGHUP,
            libc::SIGPIPE,
            libc::SIGUSR1,
        ] {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
    close_all_but([alive.as_raw_fd(), tracefs.as_raw_fd()]);
    let mut byte = 0_u8;
    // SAFETY: one byte of room. Returns when the last writing end is closed.
    while unsafe { libc::read(alive.as_raw_fd(), (&raw mut byte).cast(), 1) } < 0 {}
    let begin = Instant::now();
    while tracefs.remove_groups(|pid| pid == agent).is_err() && begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Closes every other descriptor: an open pipe of the agent's would keep its reader waiting.
fn close_all_but(mut keep: [RawFd; 2]) {
    keep.sort_unstable();
    let mut first = 0;
    for fd in keep {
        close_range(first, fd as libc::c_uint);
        first = fd as libc::c_uint + 1;
    }
    close_range(first, libc::c_uint::MAX);
}

fn close_range(first: libc::c_uint, end: libc::c_uint) {
    if first < end {
        // SAFETY: this process uses none of these descriptors any more.
        unsafe { libc::syscall(libc::SYS_close_range, first, end - 1, 0) };
    }
}
