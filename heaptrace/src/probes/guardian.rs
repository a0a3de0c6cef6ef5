//! The guardian: a small process that cleans up after the agent, even if the agent is killed.
//!
//! Stage: probes. The kernel removes programs, links and perf events with their last descriptor, but definitions of
//! uprobe events stay, so the guardian removes them. It also restores a terminal that the agent has changed. Must not know
//! what is probed, nor what is drawn.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use aya::sys::{Stats, enable_stats};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::pipe::{PipeFlags, pipe_with};

use super::helper;
use super::perf_events::close_all;
use crate::kernel::tracefs::Tracefs;
use crate::sandbox::{Kept, rights};
use crate::sys;
use crate::tty::Restorer;

/// How long the guardian waits for the kernel to release the agent's probes.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long the agent waits for an answer.
const ANSWER: Duration = Duration::from_millis(50);

/// Message that hands descriptors over to the guardian.
const LEFT: u8 = 0;

/// Message that asks for a descriptor, which makes the kernel count the run time of programs.
const COUNT: u8 = 1;

/// Message that makes the guardian close what it got: the agent has closed its own copies by then. Who closes the last
/// copy waits for the kernel.
const CLOSE: u8 = 2;

/// Most descriptors in a message; the kernel accepts 253.
const MOST_SENT: usize = 250;

/// The agent's side of the guardian.
///
/// The guardian holds the reading end of a pipe whose writing end only the agent has. When that closes, for whatever
/// reason, the guardian restores the terminal and removes the agent's definitions. The guardian also owns perf events that must belong to a
/// process that allocates nothing. After a run it closes the links of the probes: the kernel removes probes one after the
/// other, some hundredths of a second each.
pub struct Guardian {
    /// The guardian's process id.
    pub pid: u32,
    _alive: OwnedFd,
    socket: OwnedFd,
}

/// A connection for messages to the guardian.
pub struct Connection(OwnedFd);

impl Connection {
    /// Hands descriptors over to the guardian, which closes them. Returns those that the guardian did not get.
    pub fn leave(&self, mut all: Vec<OwnedFd>) -> Vec<OwnedFd> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        while !all.is_empty() {
            let first = all.len().saturating_sub(MOST_SENT);
            let sent: Vec<BorrowedFd<'_>> = all.iter().skip(first).map(|it| it.as_fd()).collect();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_SENT))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let fits = control.push(SendAncillaryMessage::ScmRights(sent.as_slice()));
            let given = sendmsg(&self.0, &[IoSlice::new(&[LEFT])], &mut control, flags);
            if !fits || given.is_err() {
                break;
            }
            all.truncate(first);
        }
        // Without this message the guardian closes them after the agent's end.
        let _ = rustix::net::send(&self.0, &[CLOSE], flags);
        all
    }

    /// Makes the kernel count the run time of programs while the returned descriptor is open. This needs a capability
    /// that the agent has given up, so the guardian opens the descriptor.
    pub fn count_runs(&self) -> io::Result<OwnedFd> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        rustix::net::send(&self.0, &[COUNT], flags)?;
        let wait = Timespec::try_from(ANSWER).map_err(io::Error::other)?;
        poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&wait))?;
        let (_, mut got) = receive(&self.0)?;
        got.pop()
            .ok_or_else(|| io::Error::other("the guardian lacks the capability (CAP_SYS_ADMIN) to count the run time of programs"))
    }
}

impl Guardian {
    /// Starts the guardian. `counts`: whether it keeps the capability that [`Connection::count_runs`] needs. `terminal`: the
    /// terminal that the agent changes, if it changes one.
    ///
    /// Must be called while this process has only one thread: the guardian is a fork of this process.
    pub fn start(tracefs: &Tracefs, counts: bool, terminal: Option<&Restorer>) -> io::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        let kind = SocketType::SEQPACKET;
        let (socket, agent_socket) =
            socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        let agent = std::process::id();
        let streams = Streams {
            alive: read,
            socket: agent_socket,
        };
        let pid = helper::start(move || guard(streams, tracefs, terminal, agent, counts))?;
        Ok(Self {
            pid,
            _alive: write,
            socket,
        })
    }
}

impl Guardian {
    /// A connection to the guardian.
    pub fn connection(&self) -> io::Result<Connection> {
        Ok(Connection(self.socket.try_clone()?))
    }
}

/// The guardian's ends of its connections to the agent.
struct Streams {
    alive: OwnedFd,
    socket: OwnedFd,
}

fn guard(
    streams: Streams,
    tracefs: &Tracefs,
    terminal: Option<&Restorer>,
    agent: u32,
    counts: bool,
) {
    helper::separate(c"heaptrace-guard");
    let Streams { alive, socket } = streams;
    let mut keep = vec![alive.as_raw_fd(), socket.as_raw_fd()];
    keep.extend(tracefs.descriptors());
    keep.extend(terminal.iter().flat_map(|it| it.descriptors()));
    helper::close_all_but(keep);
    // Room for the descriptors that the agent hands over.
    sys::raise_open_files();
    // On failure the guardian has more rights than it needs, and works all the same.
    let _ = give_up(counts);
    serve(&alive, &socket);
    if let Some(terminal) = terminal {
        terminal.restore();
        // Who reads the other end of the terminal waits until it is closed here, too.
        helper::close_all_but(tracefs.descriptors().to_vec());
    }
    let begin = Instant::now();
    while tracefs.remove_groups(|pid| pid == agent).is_err() && begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Receives the kind of a message, and its descriptors. Does not wait for a message.
fn receive(from: &OwnedFd) -> io::Result<(Option<u8>, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_SENT))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(from, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(sent) = message {
            descriptors.extend(sent);
        }
    }
    Ok(((got.bytes > 0).then_some(byte[0]), descriptors))
}

/// Answers the agent until it is gone, and closes the descriptors that it hands over.
fn serve(alive: &OwnedFd, agent: &OwnedFd) {
    let mut is_alive = true;
    let mut left = Vec::new();
    while is_alive {
        let mut fds = [
            PollFd::new(alive, PollFlags::IN),
            PollFd::new(agent, PollFlags::IN),
        ];
        // Repeats an interrupted wait.
        if poll(&mut fds, None).is_err() {
            continue;
        }
        is_alive = fds[0].revents().is_empty();
        while let Ok((Some(kind), got)) = receive(agent) {
            match kind {
                COUNT => answer(agent),
                CLOSE => close_all(std::mem::take(&mut left)),
                _ => left.extend(got),
            }
        }
    }
    close_all(left);
}

/// Answers with a descriptor that counts run time, or with none if the guardian may not open it.
fn answer(agent: &OwnedFd) {
    let counting = enable_stats(Stats::RunTime).ok();
    let sent = counting.as_ref().map(|it| it.as_fd());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(sent.as_slice()));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    // An error means that the agent is gone and needs no answer.
    let _ = sendmsg(agent, &[IoSlice::new(&[COUNT])], &mut control, flags);
}

/// Gives up all capabilities except those for removing definitions and, if asked for, for counting run time.
fn give_up(counts: bool) -> io::Result<()> {
    rights::undumpable()?;
    rights::no_new_privileges()?;
    let counting = if counts {
        Kept::SYS_ADMIN
    } else {
        Kept::empty()
    };
    rights::keep(Kept::DAC_READ_SEARCH | counting)
}
