//! A process that does for a command what the command has no rights for any more.
//!
//! Part of the command line. It is a fork, started while the command has its rights, and ends with the command. Must not know what it is
//! asked.

use std::ffi::CStr;
use std::fs::File;
use std::io;

use rustix::pipe::{PipeFlags, pipe_with};

/// The command's side of the process.
#[derive(Debug)]
pub(super) struct SideProcess {
    pub(super) question: File,
    pub(super) answer: File,
}

impl SideProcess {
    /// Starts a process with this name, which gets its questions and the place for its answers. Must be called while this process has a
    /// single thread, because it forks.
    pub(super) fn start(name: &CStr, serve: impl FnOnce(File, File)) -> io::Result<Self> {
        let (asked, question) = pipe_with(PipeFlags::CLOEXEC)?;
        let (answer, answered) = pipe_with(PipeFlags::CLOEXEC)?;
        let parent = std::process::id();
        // SAFETY: this process has one thread; the child never returns from here.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop((question, answer));
                // SAFETY: plain system calls on this process alone.
                let has_parent = unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    libc::prctl(libc::PR_SET_NAME, name.as_ptr());
                    // The parent may have ended before the death signal was set.
                    libc::getppid() as u32 == parent
                };
                if has_parent {
                    serve(asked.into(), answered.into());
                }
                // SAFETY: ends this child without the exit handlers of the parent.
                unsafe { libc::_exit(0) }
            }
            _ => Ok(Self {
                question: question.into(),
                answer: answer.into(),
            }),
        }
    }
}
