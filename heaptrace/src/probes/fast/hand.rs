//! Attaches to a thread, and maps once it has stopped. Runs in a short-lived fork of the installer, the hand.
//!
//! Stage: probes. If the thread doesn't stop in time, the hand ends: the kernel then detaches the running thread without
//! disturbing it, which it does in no other way. Must not know what is mapped.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::mapping::Mapping;
use super::messages::{Answer, Room, send};
use super::remote::{Borrowed, Failure, Registers, Stop, Thread};
use super::target_memory::TargetMemory;
use crate::proc::maps;
use crate::proc::processes::{self, start_time};

/// The bytes of the instruction `syscall`.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Most bytes of a file that are searched for the instruction.
const MOST_SEARCHED: u64 = 4 << 20;

/// What a hand has to do.
pub(super) struct Task {
    pub(super) start_time: u64,
    pub(super) signal: i32,
    pub(super) patience: Duration,
    pub(super) mapping: Mapping,
}

impl Task {
    /// Maps, and answers. Gives up if the installer closes the connection before the thread has stopped.
    pub(super) fn run(&self, installer: &OwnedFd) {
        let pid = self.mapping.pid;
        let answer = match self.attach_and_map(installer) {
            Ok((base, links)) => Answer::Mapped { pid, base, links },
            Err(why) => Answer::NotMapped { pid, why },
        };
        // An error means that the installer is gone and needs no answer.
        let _ = send(installer, &answer, &[], Room::Wait);
    }

    fn attach_and_map(&self, installer: &OwnedFd) -> Result<(u64, Vec<u64>), String> {
        let instruction = find_instruction(self.mapping.pid, &self.mapping.memory)?;
        let children = child_signals().map_err(|error| error.to_string())?;
        let thread = Thread::seize(self.mapping.tid).map_err(|error| self.not_attached(&error))?;
        // Now that it is attached, its id can't become another thread's.
        let task = format!("/proc/{}/task/{}", self.mapping.pid, self.mapping.tid);
        if start_time(self.mapping.pid) != Some(self.start_time) || !Path::new(&task).exists() {
            return Err("the thread has ended".to_owned());
        }
        let pid = self.mapping.pid;
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
        match (
            error.raw_os_error(),
            processes::tracer(self.mapping.pid, self.mapping.tid)
                .ok()
                .flatten(),
        ) {
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

    fn map_in(&self, thread: &Thread, instruction: u64) -> Result<(u64, Vec<u64>), Failure> {
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
        let mapped = self.mapping.make(&mut borrowed);
        let mapped = mapped.and_then(|base| Ok((base, self.mapping.make_links(&mut borrowed)?)));
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
        if self.mapping.memory.read(instruction).ok() != Some(SYSCALL) {
            return Err(Failure::Ended);
        }
        // If the kernel sees the thread run other code, it forgets that the thread is in a sequence.
        let sequence = thread
            .rseq()
            .and_then(|area| self.mapping.memory.word(area + 8).ok())
            .filter(|sequence| *sequence != 0);
        if let Some(sequence) = sequence
            && let (Ok(start), Ok(length)) = (
                self.mapping.memory.word(sequence + 8),
                self.mapping.memory.word(sequence + 16),
            )
            && registers.rip.wrapping_sub(start) < length
        {
            return Err(Failure::Unsuitable(
                "the thread was stopped in a restartable sequence (rseq)",
            ));
        }
        Ok(())
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
