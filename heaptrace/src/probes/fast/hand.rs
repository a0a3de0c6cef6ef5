//! Maps code of ours into one process. Runs in a short-lived fork of the installer, the hand.
//!
//! Stage: probes. If the hand's thread doesn't stop in time, the hand ends: the kernel then detaches the running thread without
//! disturbing it, which it does in no other way. The thread makes few calls. Only two of four descriptors are open in the
//! target at a time, and its stack is not touched: the reserved addresses serve as scratch memory before the parts are mapped over
//! them. Must not know what the code does.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use libc::c_int;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::messages::{Answer, Room, Sizes, send};
use super::remote::{Borrowed, Failure, Registers, Stop, Thread};
use super::target_memory::{TargetMemory, start_time};
use crate::proc::maps;

/// The bytes of the instruction `syscall`.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Most bytes of a file that are searched for the instruction.
const MOST_SEARCHED: u64 = 4 << 20;

/// Opens a thread, not a process (Linux 6.9).
const PIDFD_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL as u32);

/// Where things are in the scratch memory.
mod scratch {
    /// Two descriptors.
    pub(super) const SOCKETS: u64 = 0;
    /// A `struct msghdr`.
    pub(super) const MESSAGE: u64 = 16;
    /// A `struct iovec`.
    pub(super) const VECTOR: u64 = 80;
    /// A byte to receive.
    pub(super) const BYTE: u64 = 96;
    /// A `struct cmsghdr`.
    pub(super) const CONTROL: u64 = 104;
}

/// Bytes for a control message with two descriptors.
const CONTROL_BYTES: u64 = 24;

/// What a hand has to do.
pub(super) struct Task {
    pub(super) pid: u32,
    pub(super) start_time: u64,
    pub(super) tid: u32,
    pub(super) signal: i32,
    pub(super) places: Vec<u64>,
    pub(super) sizes: Sizes,
    pub(super) patience: Duration,
    pub(super) memory: TargetMemory,
    /// The file of code and data.
    pub(super) file: OwnedFd,
    /// The memory of the hints.
    pub(super) hints: OwnedFd,
}

impl Task {
    /// Maps, and answers. Gives up if the installer closes the connection before the thread has stopped.
    pub(super) fn run(&self, installer: &OwnedFd) {
        let pid = self.pid;
        let answer = match self.attach_and_map(installer) {
            Ok(base) => Answer::Mapped { pid, base },
            Err(why) => Answer::NotMapped { pid, why },
        };
        // An error means that the installer is gone and needs no answer.
        let _ = send(installer, &answer, &[], Room::Wait);
    }

    fn attach_and_map(&self, installer: &OwnedFd) -> Result<u64, String> {
        let instruction = find_instruction(self.pid, &self.memory)?;
        let children = child_signals().map_err(|error| error.to_string())?;
        let thread = Thread::seize(self.tid).map_err(|error| self.not_attached(&error))?;
        // Now that it is attached, its id can't become another thread's.
        let task = format!("/proc/{}/task/{}", self.pid, self.tid);
        if start_time(self.pid) != Some(self.start_time) || !std::path::Path::new(&task).exists() {
            return Err("the thread has ended".to_owned());
        }
        let pid = self.pid;
        send(installer, &Answer::Seized { pid }, &[], Room::Wait)
            .map_err(|error| error.to_string())?;
        let stopped = self.wait(&thread, &children, installer);
        if !stopped.map_err(|failure| failure.to_string())? {
            return Err("the thread called no function of the allocator in time".to_owned());
        }
        let mapped = self.map_in(&thread, instruction);
        mapped.map_err(|failure| failure.to_string())
    }

    fn not_attached(&self, error: &io::Error) -> String {
        match (error.raw_os_error(), tracer(self.pid, self.tid)) {
            (Some(libc::EPERM), Some(tracer)) => {
                format!("the process {tracer} traces it already (a debugger?)")
            }
            (Some(libc::ESRCH), _) => "the thread has ended".to_owned(),
            _ => format!("it can't be attached: {error}"),
        }
    }

    /// Waits until the thread stops by the signal. Everything else that happens to it happens as if it were not attached.
    /// Returns whether it has stopped.
    fn wait(
        &self,
        thread: &Thread,
        children: &OwnedFd,
        installer: &OwnedFd,
    ) -> Result<bool, Failure> {
        let end = Instant::now() + self.patience;
        let mut is_over = false;
        loop {
            while let Some(stop) = thread.stop()? {
                if stop == Stop::Signal(self.signal) {
                    return Ok(true);
                }
                thread.pass_on(stop)?;
            }
            // It may have stopped at the last moment, so this comes behind the question.
            if is_over {
                return Ok(false);
            }
            let left = end.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).unwrap_or_default();
            let mut fds = [
                PollFd::new(children, PollFlags::IN),
                PollFd::new(installer, PollFlags::IN),
            ];
            let ready = poll(&mut fds, Some(&left));
            is_over = ready == Ok(0) || fds.last().is_some_and(|it| !it.revents().is_empty());
            // The content doesn't matter: the next round asks the kernel.
            let mut read = [0; size_of::<libc::signalfd_siginfo>()];
            let _ = rustix::io::read(children, &mut read);
        }
    }

    fn map_in(&self, thread: &Thread, instruction: u64) -> Result<u64, Failure> {
        let checked = thread
            .registers()
            .and_then(|registers| self.check(thread, &registers, instruction));
        let borrowed = checked.and_then(|()| Borrowed::take(thread, instruction));
        let mut borrowed = match borrowed {
            Ok(borrowed) => borrowed,
            Err(failure) => {
                thread.let_go()?;
                return Err(failure);
            }
        };
        let mapped = self.reserve_and_map(&mut borrowed);
        borrowed.give_back()?;
        mapped
    }

    /// Whether the thread can be borrowed here.
    fn check(
        &self,
        thread: &Thread,
        registers: &Registers,
        instruction: u64,
    ) -> Result<(), Failure> {
        // After `exec`, this memory is no longer the thread's.
        if self.memory.read(instruction).ok() != Some(SYSCALL) {
            return Err(Failure::Ended);
        }
        // If the kernel sees the thread run other code, it forgets that the thread is in a sequence.
        let sequence = thread
            .rseq()
            .and_then(|area| self.memory.word(area + 8).ok())
            .filter(|sequence| *sequence != 0);
        if let Some(sequence) = sequence
            && let (Ok(start), Ok(length)) = (
                self.memory.word(sequence + 8),
                self.memory.word(sequence + 16),
            )
            && registers.rip.wrapping_sub(start) < length
        {
            return Err(Failure::Unsuitable(
                "the thread was stopped in a restartable sequence (rseq)",
            ));
        }
        Ok(())
    }

    fn reserve_and_map(&self, thread: &mut Borrowed<'_>) -> Result<u64, Failure> {
        let Sizes { code, data, hints } = self.sizes;
        let total = code + data + hints;
        let base = self.reserve(thread, total)?;
        let mapped = self.map_at(thread, base);
        if let Err(failure) = mapped {
            thread.call("munmap", libc::SYS_munmap, &[base, total])?;
            return Err(failure);
        }
        Ok(base)
    }

    /// Reserves addresses. No other thread of the target can get them then.
    fn reserve(&self, thread: &mut Borrowed<'_>, total: u64) -> Result<u64, Failure> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE
            | libc::MAP_ANONYMOUS
            | libc::MAP_NORESERVE
            | libc::MAP_FIXED_NOREPLACE;
        for place in &self.places {
            let place = *place;
            match map(thread, place, total, protection, flags, (u64::MAX, 0)) {
                Err(Failure::Call {
                    error: libc::EEXIST,
                    ..
                }) => {}
                Err(failure) => return Err(failure),
                Ok(()) => return Ok(place),
            }
        }
        Err(Failure::Unsuitable(
            "it has no free addresses near the allocator",
        ))
    }

    fn map_at(&self, thread: &mut Borrowed<'_>, base: u64) -> Result<(), Failure> {
        let Sizes { code, data, hints } = self.sizes;
        let [file, map_file] = self.pass(thread, base)?;
        let (read, write, execute) = (libc::PROT_READ, libc::PROT_WRITE, libc::PROT_EXEC);
        let (private, shared) = (libc::MAP_PRIVATE, libc::MAP_SHARED);
        let (data_at, hints_at) = (base + code, base + code + data);
        let parts = [
            (base, code, read | execute, private, (file, 0)),
            (data_at, data, read | write, private, (file, code)),
            (hints_at, hints, read, shared, (map_file, 0)),
        ];
        let mut result = Ok(());
        for (address, length, protection, flags, from) in parts {
            let flags = flags | libc::MAP_FIXED;
            result = result.and_then(|()| map(thread, address, length, protection, flags, from));
        }
        close(thread, &[file, map_file])?;
        result
    }

    /// Gives the thread's process the descriptors of file and hints. Returns their numbers there.
    fn pass(&self, thread: &mut Borrowed<'_>, base: u64) -> Result<[u64; 2], Failure> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        let at = base + scratch::SOCKETS;
        let arguments = [libc::AF_UNIX as u64, kind as u64, 0, at];
        thread.call("socketpair", libc::SYS_socketpair, &arguments)?;
        let sockets = self.word(at)?;
        let (ours, theirs) = (sockets & u64::from(u32::MAX), sockets >> 32);
        let sent = self.send(ours as c_int);
        let received = sent.and_then(|()| self.receive(thread, theirs, base));
        close(thread, &[ours, theirs])?;
        match received?.as_slice() {
            [file, hints] => Ok([*file, *hints]),
            some => {
                close(thread, some)?;
                Err(Failure::Unsuitable(
                    "it can't receive descriptors (too many open files?)",
                ))
            }
        }
    }

    /// Sends the descriptors through the target's own socket.
    fn send(&self, socket: c_int) -> Result<(), Failure> {
        let target = |id: u32, flags| {
            let id = Pid::from_raw(id as i32).ok_or(rustix::io::Errno::SRCH)?;
            pidfd_getfd(pidfd_open(id, flags)?, socket, PidfdGetfdFlags::empty())
        };
        // The process has no descriptors left if its first thread has ended.
        let socket = target(self.tid, PIDFD_THREAD)
            .or_else(|_| target(self.pid, PidfdFlags::empty()))
            .map_err(|error| failed("pidfd_getfd", error))?;
        let sent: [BorrowedFd<'_>; 2] = [self.file.as_fd(), self.hints.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&sent));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(&socket, &[IoSlice::new(&[0])], &mut control, flags)
            .map_err(|error| failed("sendmsg", error))?;
        Ok(())
    }

    /// Lets the thread receive the descriptors. Returns the numbers of those that it got.
    fn receive(
        &self,
        thread: &mut Borrowed<'_>,
        socket: u64,
        base: u64,
    ) -> Result<Vec<u64>, Failure> {
        let vector = [base + scratch::BYTE, 1];
        let control = base + scratch::CONTROL;
        // No name; one vector; control messages; no flags.
        let message = [0, 0, base + scratch::VECTOR, 1, control, CONTROL_BYTES, 0];
        self.put(base + scratch::VECTOR, &vector)?;
        self.put(base + scratch::MESSAGE, &message)?;
        let flags = (libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT) as u64;
        let arguments = [socket, base + scratch::MESSAGE, flags];
        thread.call("recvmsg", libc::SYS_recvmsg, &arguments)?;
        // The memory was zero, so the length is zero if nothing was received.
        let length = self.word(control)?.saturating_sub(16);
        let both = self.word(control + 16)?;
        let numbers = [both & u64::from(u32::MAX), both >> 32];
        Ok(numbers.into_iter().take(length as usize / 4).collect())
    }

    fn word(&self, address: u64) -> Result<u64, Failure> {
        self.memory.word(address).map_err(|_| Failure::Ended)
    }

    fn put(&self, address: u64, words: &[u64]) -> Result<(), Failure> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let written = self.memory.write(address, &bytes);
        written.map_err(|_| Failure::Ended)
    }
}

/// Maps something at an address.
fn map(
    thread: &mut Borrowed<'_>,
    address: u64,
    length: u64,
    protection: c_int,
    flags: c_int,
    (file, offset): (u64, u64),
) -> Result<(), Failure> {
    let (protection, flags) = (protection as u64, flags as u64);
    let arguments = [address, length, protection, flags, file, offset];
    let mapped = thread.call("mmap", libc::SYS_mmap, &arguments)?;
    if mapped == address {
        return Ok(());
    }
    // A kernel that doesn't know a flag has mapped somewhere else.
    thread.call("munmap", libc::SYS_munmap, &[mapped, length])?;
    Err(Failure::Unsuitable("the kernel is too old (before 4.17)"))
}

/// Closes descriptors: with one call if their numbers follow each other, because each call holds the thread for longer.
fn close(thread: &mut Borrowed<'_>, numbers: &[u64]) -> Result<(), Failure> {
    if let [first, last] = numbers
        && first + 1 == *last
    {
        let range = [*first, *last, 0];
        match thread.call("close_range", libc::SYS_close_range, &range) {
            Ok(_) => return Ok(()),
            // Linux before 5.9 doesn't have this call.
            Err(Failure::Call { .. }) => {}
            Err(failure) => return Err(failure),
        }
    }
    for number in numbers {
        match thread.call("close", libc::SYS_close, &[*number]) {
            // An error of the call itself means that it is closed.
            Ok(_) | Err(Failure::Call { .. }) => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

fn failed(name: &'static str, error: rustix::io::Errno) -> Failure {
    Failure::Call {
        name,
        error: error.raw_os_error(),
    }
}

/// A descriptor that is readable when a traced thread has stopped or ended. The signal SIGCHLD is blocked from now on.
fn child_signals() -> io::Result<OwnedFd> {
    // SAFETY: plain calls on this process, which has one thread; the set is initialized before it is used.
    unsafe {
        // The kernel sends no SIGCHLD if it is ignored.
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        let mut set = MaybeUninit::zeroed();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
        match libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// The process that traces a thread.
fn tracer(pid: u32, tid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"))?;
    line.trim().parse().ok().filter(|tracer| *tracer != 0)
}

/// The address of a `syscall` instruction in a process. No probe can be in the kernel's own part (`[vdso]`), so that is
/// searched first. A probe in a file replaces the instruction, so such a place is not found.
fn find_instruction(pid: u32, memory: &TargetMemory) -> Result<u64, String> {
    let text = maps::read(pid).map_err(|error| format!("its mappings can't be read: {error}"))?;
    let mut all: Vec<_> = maps::parse(&text)
        .filter(|mapping| mapping.executable && mapping.start >> 63 == 0)
        .filter(|mapping| mapping.path == "[vdso]" || mapping.inode != 0)
        .collect();
    all.sort_by_key(|mapping| mapping.path != "[vdso]");
    for mapping in all {
        let length = (mapping.end - mapping.start).min(MOST_SEARCHED);
        let bytes = memory.read_bytes(mapping.start, length as usize);
        let found = bytes
            .unwrap_or_default()
            .windows(SYSCALL.len())
            .position(|bytes| bytes == SYSCALL);
        if let Some(at) = found {
            return Ok(mapping.start + at as u64);
        }
    }
    Err("it has no instruction for system calls".to_owned())
}

/// The numbers of descriptors that a hand needs, besides its connection.
pub(super) fn descriptors(task: &Task) -> [c_int; 3] {
    [
        task.memory.descriptor(),
        task.file.as_raw_fd(),
        task.hints.as_raw_fd(),
    ]
}
