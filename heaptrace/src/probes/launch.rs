//! Starts a command and holds it before its first instruction until it is probed.
//!
//! Stage: probes. Must not know what is attached to the command meanwhile.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result, anyhow, ensure};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::thread::CapabilitySet;
use thiserror::Error;

use crate::account::Account;
use crate::sys;

/// A command that can't be started.
#[derive(Debug, Error)]
pub enum LaunchError {
    /// It does not exist.
    #[error("{0}: command not found")]
    NotFound(String),
    /// It exists and can't be run.
    #[error("{0}: {1}")]
    NotExecutable(String, io::Error),
}

impl LaunchError {
    /// The exit status that a shell would use.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound(_) => 127,
            Self::NotExecutable(..) => 126,
        }
    }
}

/// A forked process that waits before its `exec`.
pub struct Held {
    /// Its process id.
    pub pid: u32,
    name: String,
    go: File,
    spawned: JoinHandle<io::Result<Child>>,
}

impl Held {
    /// Forks a process for the command. The command runs as `user`, if one is given.
    pub fn new(words: &[OsString], user: Option<&Account>) -> Result<Self> {
        let (program, arguments) = words.split_first().context("no command given")?;
        let (pid_read, pid_write) = pipe_with(PipeFlags::CLOEXEC)?;
        let (go_read, go) = pipe_with(PipeFlags::CLOEXEC)?;
        let agents_end = go.as_raw_fd();
        let mut command = Command::new(program);
        command.args(arguments);
        if let Some(user) = user {
            require_change_of_user()?;
            user.set_environment(&mut command);
        }
        let user = user.cloned();
        // SAFETY: between fork and exec only getpid, close, read and write are called, and the system calls that change
        // the user. The process waits until the agent has attached, or has ended and thereby closed its end of the pipe.
        unsafe {
            command.pre_exec(move || {
                // Closes this process's copy of the agent's end, so that the pipe closes if the agent ends.
                libc::close(agents_end);
                let pid = libc::getpid().to_ne_bytes();
                if libc::write(pid_write.as_raw_fd(), pid.as_ptr().cast(), pid.len()) < 0 {
                    return Err(io::Error::last_os_error());
                }
                let mut byte = 0_u8;
                if libc::read(go_read.as_raw_fd(), (&raw mut byte).cast(), 1) != 1 {
                    return Err(io::Error::from_raw_os_error(libc::ECANCELED));
                }
                sys::restore_file_size_signal();
                // The user changes last, because until `exec` this process has a copy of the agent's memory.
                user.as_ref().map_or(Ok(()), Account::assume)
            });
        }
        // `spawn` returns only after the `exec`, so it waits in a thread of its own.
        let spawned = std::thread::spawn(move || command.spawn());
        let mut pid = [0; 4];
        File::from(pid_read)
            .read_exact(&mut pid)
            .context("can't fork a process for the command")?;
        Ok(Self {
            pid: u32::from_ne_bytes(pid),
            name: program.to_string_lossy().into_owned(),
            go: go.into(),
            spawned,
        })
    }

    /// Lets the command run.
    pub fn release(mut self) -> Result<Child> {
        self.go
            .write_all(&[1])
            .context("the command's process ended before the command could start")?;
        let spawned = self
            .spawned
            .join()
            .map_err(|_| anyhow!("the thread that starts the command failed"))?;
        spawned.map_err(|error| {
            match error.kind() {
                io::ErrorKind::NotFound => LaunchError::NotFound(self.name),
                _ => LaunchError::NotExecutable(self.name, error),
            }
            .into()
        })
    }
}

/// Finds the file that a command's first word names, as `execvp` does.
pub fn look_up(word: &OsStr) -> Option<PathBuf> {
    if Path::new(word).components().count() > 1 || word.as_encoded_bytes().contains(&b'/') {
        return Some(word.into());
    }
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(word))
        .find(|path| path.is_file())
}

/// Refuses a change of user early that the kernel would refuse only after everything is attached.
fn require_change_of_user() -> Result<()> {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    let own = rustix::thread::capabilities(None)
        .context("can't read the capabilities of this process")?;
    ensure!(
        own.effective.contains(needed),
        "--as needs CAP_SETUID and CAP_SETGID: run heaptrace by sudo, or without --as"
    );
    Ok(())
}
