//! The agent's side of the installer: the only process that attaches to targets and writes into them.
//!
//! Stage: probes. The installer is a process of its own, so that SIGKILL of the agent at any moment harms no target: a thread
//! that makes calls for the installer is given back, and every slot and stub is restored. Must not know what is mapped, nor how.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

pub use super::messages::{
    Answer, LinkPlace, MOST_SLOTS, MOST_STUBS, Redirect, Request, Sizes, Slot,
};
use super::messages::{Received, Room, receive, send};
use super::serve::Installed;
use crate::probes::helper;
use crate::sandbox::{Kept, rights};
use crate::sys::{self, ThreadPriority};

/// A running installer. It restores all slots and ends when this is dropped, or when the agent ends for whatever reason.
pub struct Installer {
    /// The installer's process id.
    pub pid: u32,
    socket: OwnedFd,
}

impl Installer {
    /// Starts the installer, a fork of this process. Must be called while this process has only one thread, and all rights.
    pub fn start() -> io::Result<Self> {
        let kind = SocketType::SEQPACKET;
        let (socket, agent) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        let pid = helper::start(move || install(agent))?;
        Ok(Self { pid, socket })
    }

    /// Sends a request, with a descriptor for [`Request::Map`]. Never waits: it fails if the installer has too much to do.
    pub fn send(&self, request: &Request, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        send(&self.socket, request, descriptor.as_slice(), Room::Fail)
    }

    /// The answers that have arrived. Fails if the installer has ended.
    pub fn answers(&self) -> io::Result<Vec<Answer>> {
        let mut answers = Vec::new();
        loop {
            match receive(&self.socket) {
                Received::Message(answer, _) => answers.push(answer),
                Received::Nothing => return Ok(answers),
                Received::End if !answers.is_empty() => return Ok(answers),
                Received::End => return Err(io::ErrorKind::BrokenPipe.into()),
                Received::Invalid => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }
}

impl AsFd for Installer {
    /// Readable when an answer has arrived, or when the installer has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Installer {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// The installer's process.
fn install(agent: OwnedFd) {
    helper::separate(c"heaptrace-fast");
    helper::close_all_but(vec![agent.as_raw_fd()]);
    // Each mapped process needs two descriptors.
    sys::raise_open_files();
    // While the installer waits for a processor, a thread of a target may wait for the installer.
    ThreadPriority::of_this_thread().raise();
    // If memory is short, the kernel must not end the process that has to restore others. Best effort.
    let score = File::options().write(true).open("/proc/self/oom_score_adj");
    let _ = score.and_then(|mut score| score.write_all(b"-1000"));
    // On failure the installer has more rights than it needs, and works all the same.
    let _ = give_up();
    Installed::default().serve(&agent);
}

/// Gives up all capabilities except those for attaching to processes, and for opening their memory for writing if they belong
/// to other users.
fn give_up() -> io::Result<()> {
    rights::undumpable()?;
    rights::no_new_privileges()?;
    rights::keep(Kept::SYS_PTRACE | Kept::DAC_OVERRIDE)
}
