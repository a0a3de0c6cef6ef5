//! A small process that cleans up after an agent that was killed.
//!
//! Stage: probes. Programs, links and perf events go with their last descriptor, but definitions of
//! uprobe events stay. The guardian holds the reading end of a pipe whose writing end only the
//! agent has; when that closes, whatever the reason, it removes the agent's definitions. It also
//! lends its process to perf events that must belong to one that allocates nothing. And it inherits the probes of a run
//! that has many: the kernel takes them out one after the other, some hundredths of a second each.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use aya::sys::{Stats, enable_stats};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::kernel::tracefs::Tracefs;
use crate::sandbox::{Kept, rights};
use crate::sys;

/// How long the guardian waits for the kernel to let go of the agent's probes.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long the agent waits for an answer.
const ANSWER: Duration = Duration::from_millis(50);

/// What a message is for: descriptors that are left, or a descriptor that is asked for.
const LEFT: u8 = 0;
const COUNT: u8 = 1;

/// Most descriptors of a message; the kernel takes 253.
const MOST_SENT: usize = 250;

/// The agent's end: while it is open, the guardian sleeps.
pub struct Guardian {
    /// Its process id.
    pub pid: u32,
    _alive: OwnedFd,
    heir: OwnedFd,
}

/// Whom probes can be left to, at the end of a run.
pub struct Heir(OwnedFd);

impl Heir {
    /// Leaves descriptors to the guardian, which closes them once the agent is gone. Returns those that it did not get.
    pub fn leave(&self, mut all: Vec<OwnedFd>) -> Vec<OwnedFd> {
        while !all.is_empty() {
            let first = all.len().saturating_sub(MOST_SENT);
            let sent: Vec<BorrowedFd<'_>> = all.iter().skip(first).map(|it| it.as_fd()).collect();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_SENT))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let fits = control.push(SendAncillaryMessage::ScmRights(&sent));
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let given = sendmsg(&self.0, &[IoSlice::new(&[LEFT])], &mut control, flags);
            if !fits || given.is_err() {
                break;
            }
            all.truncate(first);
        }
        all
    }

    /// Has the kernel count what programs take, as long as the descriptor is open. That takes a right which the agent
    /// has given up.
    pub fn count_runs(&self) -> io::Result<OwnedFd> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        rustix::net::send(&self.0, &[COUNT], flags)?;
        let wait = Timespec::try_from(ANSWER).map_err(io::Error::other)?;
        poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&wait))?;
        let (_, mut got) = receive(&self.0)?;
        got.pop()
            .ok_or_else(|| io::Error::other("the guardian has no right to it"))
    }
}

impl Guardian {
    /// Starts the guardian; `counts`: whether the kernel is to count for it what programs take.
    ///
    /// Must be called while this process has only one thread: the guardian is a fork of it.
    pub fn start(tracefs: &Tracefs, counts: bool) -> io::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        let (pid_read, pid_write) = pipe_with(PipeFlags::CLOEXEC)?;
        let kind = SocketType::SEQPACKET;
        let (heir, left) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        let agent = std::process::id();
        // SAFETY: this process has one thread; the child never returns from this function.
        match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()),
            0 => {
                drop((write, heir));
                // SAFETY: a second fork makes the guardian a child of init, so that nobody has to
                // wait for it.
                match unsafe { libc::fork() } {
                    0 => guard(&read, &left, tracefs, agent, counts),
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
                heir,
            }),
            _ => Err(io::Error::other("no process could be forked")),
        }
    }
}

impl Guardian {
    /// Whom probes can be left to.
    pub fn heir(&self) -> io::Result<Heir> {
        Ok(Heir(self.heir.try_clone()?))
    }
}

fn guard(alive: &OwnedFd, left: &OwnedFd, tracefs: &Tracefs, agent: u32, counts: bool) {
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
    let [root, events] = tracefs.descriptors();
    close_all_but([alive.as_raw_fd(), left.as_raw_fd(), root, events]);
    // For what is left to it.
    sys::raise_open_files();
    // With more rights than it needs it does its work all the same.
    let _ = give_up(counts);
    serve(alive, left);
    let begin = Instant::now();
    while tracefs.remove_groups(|pid| pid == agent).is_err() && begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What a message says, and the descriptors that came with it. Doesn't wait for one.
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

/// Serves the agent until it is gone, and closes what that has left.
fn serve(alive: &OwnedFd, agent: &OwnedFd) {
    let mut is_alive = true;
    while is_alive {
        let mut fds = [
            PollFd::new(alive, PollFlags::IN),
            PollFd::new(agent, PollFlags::IN),
        ];
        // An interrupted wait is begun anew.
        if poll(&mut fds, None).is_err() {
            continue;
        }
        is_alive = fds[0].revents().is_empty();
        while let Ok((Some(kind), left)) = receive(agent) {
            drop(left);
            if kind == COUNT {
                answer(agent);
            }
        }
    }
}

/// Answers with a descriptor, or with none where there is no right to it.
fn answer(agent: &OwnedFd) {
    let counting = enable_stats(Stats::RunTime).ok();
    let sent: Vec<BorrowedFd<'_>> = counting.iter().map(|it| it.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&sent));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    // An agent that is gone needs no answer.
    let _ = sendmsg(agent, &[IoSlice::new(&[COUNT])], &mut control, flags);
}

/// Gives up what it does not need: it removes definitions, and may let the kernel count.
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

/// Closes every other descriptor: an open pipe of the agent's would keep its reader waiting.
fn close_all_but(mut keep: [RawFd; 4]) {
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
