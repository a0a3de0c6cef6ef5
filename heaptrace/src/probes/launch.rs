//! A command that is held before its first instruction until it is probed.
//!
//! Stage: probes. Starts it; knows nothing of what is attached to it meanwhile.

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

/// A command that can't be started. The exit status is the one that shells use.
#[derive(Debug, Error)]
pub enum LaunchError {
    /// It is not there.
    #[error("{0}: command not found")]
    NotFound(String),
    /// It is there and can't be run.
    #[error("{0}: {1}")]
    NotExecutable(String, io::Error),
}

impl LaunchError {
    /// What a shell would exit with.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound(_) => 127,
            Self::NotExecutable(..) => 126,
        }
    }
}

/// A process that waits for its `exec`.
pub struct Held {
    /// Its process id.
    pub pid: u32,
    name: String,
    go: File,
    spawned: JoinHandle<io::Result<Child>>,
}

impl Held {
    /// Forks a process for the command, which runs as the user, if one is named.
    pub fn new(words: &[OsString], user: Option<&Account>) -> Result<Self> {
        let (program, arguments) = words.split_first().context("no command given")?;
        let (pid_read, pid_write) = pipe_with(PipeFlags::CLOEXEC)?;
        let (go_read, go) = pipe_with(PipeFlags::CLOEXEC)?;
        let agents_end = go.as_raw_fd();
        let mut command = Command::new(program);
        command.args(arguments);
        if let Some(user) = user {
            require_change_of_user()?;
            environment(&mut command, user);
        }
        let user = user.cloned();
        // SAFETY: between fork and exec only getpid, close, read and write are called, and what changes the
        // user. The process waits until the agent has attached, or has gone and closed its end.
        unsafe {
            command.pre_exec(move || {
                // This process has a copy of the agent's end; closed, so that its death shows.
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
                // Only now: until here the process has the agent's memory.
                user.as_ref().map_or(Ok(()), become_user)
            });
        }
        // `spawn` returns only when the command runs, so it gets a thread to wait in.
        let spawned = std::thread::spawn(move || command.spawn());
        let mut pid = [0; 4];
        File::from(pid_read)
            .read_exact(&mut pid)
            .context("can't start a process for the command")?;
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
            .context("the command's process is gone")?;
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

/// The file that a command's first word names, looked up as `execvp` does.
pub fn look_up(word: &OsStr) -> Option<PathBuf> {
    if Path::new(word).components().count() > 1 || word.as_encoded_bytes().contains(&b'/') {
        return Some(word.into());
    }
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(word))
        .find(|path| path.is_file())
}

/// Refuses what the kernel would refuse when everything is attached.
fn require_change_of_user() -> Result<()> {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    let own = rustix::thread::capabilities(None).context("can't ask for capabilities")?;
    ensure!(
        own.effective.contains(needed),
        "--as needs CAP_SETUID and CAP_SETGID: run heaptrace by sudo, or without --as"
    );
    Ok(())
}

/// What tells a program who it runs as. The rest is the agent's, as it is without.
fn environment(command: &mut Command, user: &Account) {
    command
        .env("HOME", &user.home)
        .env("USER", &user.name)
        .env("LOGNAME", &user.name)
        .env("SHELL", &user.shell);
    for name in [
        "MAIL",
        "SUDO_COMMAND",
        "SUDO_GID",
        "SUDO_HOME",
        "SUDO_UID",
        "SUDO_USER",
    ] {
        command.env_remove(name);
    }
}

/// Becomes a user, for good. Between fork and exec: it may call nothing but the system.
///
/// The kernel takes perf events, and with them the probes, from a process whose `exec` changes its user. This changes it
/// before, and all of its ids, so the `exec` changes none.
fn become_user(user: &Account) -> io::Result<()> {
    let checked = |result: libc::c_int| match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: the list is as long as said; the other calls take no pointers.
    unsafe {
        checked(libc::setgroups(user.groups.len(), user.groups.as_ptr()))?;
        checked(libc::setresgid(user.gid, user.gid, user.gid))?;
        checked(libc::setresuid(user.uid, user.uid, user.uid))?;
        // What an agent that is not root hands on to all that it starts. A kernel without has none.
        libc::prctl(
            libc::PR_CAP_AMBIENT,
            libc::PR_CAP_AMBIENT_CLEAR_ALL,
            0,
            0,
            0,
        );
    }
    Ok(())
}
