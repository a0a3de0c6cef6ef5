//! Small processes beside the agent, which outlive it to clean up.
//!
//! Stage: probes. Must not know what such a process does.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::RawFd;

use rustix::pipe::{PipeFlags, pipe_with};

/// Starts a helper, and returns its process id. The helper ends when `run` returns.
///
/// Must be called while this process has only one thread: the helper is a fork of this process. It is a child of init, so no
/// other process has to wait for it.
pub(super) fn start(run: impl FnOnce()) -> io::Result<u32> {
    let (pid_read, pid_write) = pipe_with(PipeFlags::CLOEXEC)?;
    // SAFETY: this process has one thread; the child never returns from this function.
    match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: as above. The child of this child becomes a child of init.
            match unsafe { libc::fork() } {
                0 => run(),
                helper => {
                    let _ = File::from(pid_write).write_all(&helper.to_ne_bytes());
                }
            }
            exit();
        }
        child => {
            let mut status = 0;
            // SAFETY: waits for the child that was just forked.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
        }
    }
    drop(pid_write);
    let mut pid = [0; 4];
    File::from(pid_read).read_exact(&mut pid)?;
    match i32::from_ne_bytes(pid) {
        1.. => Ok(u32::from_ne_bytes(pid)),
        _ => Err(io::Error::other("can't fork a process")),
    }
}

/// Ends a forked process without running the agent's exit handlers.
pub(super) fn exit() -> ! {
    // SAFETY: no memory is touched.
    unsafe { libc::_exit(0) }
}

/// Names a helper, and separates it from the signals that end or control a run, which are for the agent. A helper must
/// outlive the agent, even if the whole process group gets the signal.
pub(super) fn separate(name: &CStr) {
    // SAFETY: plain system calls on this process alone.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
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
}

/// Closes every other descriptor: an inherited pipe of the agent that stays open would keep its reader waiting.
pub(super) fn close_all_but(mut keep: Vec<RawFd>) {
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
        // SAFETY: this process no longer uses any of these descriptors.
        unsafe { libc::syscall(libc::SYS_close_range, first, end - 1, 0) };
    }
}
