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

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use super::tracefs::Tracefs;
use crate::sys;

/// How long the guardian waits for the kernel to let go of the agent's probes.
const PATIENCE: Duration = Duration::from_secs(30);

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
            let given = sendmsg(&self.0, &[IoSlice::new(&[0])], &mut control, flags);
            if !fits || given.is_err() {
                break;
            }
            all.truncate(first);
        }
        all
    }
}

impl Guardian {
    /// Starts the guardian.
    ///
    /// Must be called while this process has only one thread: the guardian is a fork of it.
    pub fn start(tracefs: &Tracefs) -> io::Result<Self> {
        let (read, write) = sys::pipe()?;
        let (pid_read, pid_write) = sys::pipe()?;
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
                    0 => guard(&read, &left, tracefs, agent),
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

fn guard(alive: &OwnedFd, left: &OwnedFd, tracefs: &Tracefs, agent: u32) {
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
    close_all_but([alive.as_raw_fd(), left.as_raw_fd(), tracefs.as_raw_fd()]);
    // For what is left to it.
    sys::raise_open_files();
    let mut byte = 0_u8;
    // SAFETY: one byte of room. Returns when the last writing end is closed.
    while unsafe { libc::read(alive.as_raw_fd(), (&raw mut byte).cast(), 1) } < 0 {}
    while close_left(left) {}
    let begin = Instant::now();
    while tracefs.remove_groups(|pid| pid == agent).is_err() && begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Closes what one message of the agent's has left; false at the end.
fn close_left(left: &OwnedFd) -> bool {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_SENT))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(left, &mut [IoSliceMut::new(&mut byte)], &mut control, flags);
    // Those that were received are closed with the messages that hold them.
    drop(control);
    got.is_ok_and(|got| got.bytes > 0)
}

/// Closes every other descriptor: an open pipe of the agent's would keep its reader waiting.
fn close_all_but(mut keep: [RawFd; 3]) {
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
