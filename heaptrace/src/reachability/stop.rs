//! Stops all threads of a process for a short time, and reads their registers.
//!
//! Part of `reachability`. The process goes on when this value is dropped, and also if this process is killed: the kernel ends what it
//! traced (`PTRACE_SEIZE`) then. Nothing is written. Must not know what is read meanwhile.

use std::io;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::proc::processes;
use crate::ptrace::{self, EVENT_STOP, request};
use crate::sys;

/// How long the threads of a process may take to stop.
const PATIENCE: Duration = Duration::from_millis(300);

/// Most threads of a process that is stopped.
const MAX_THREADS: usize = 1 << 14;

/// How often threads are listed until no new one is found.
const ROUNDS: usize = 16;

/// Bytes below the stack pointer that a function may use.
const RED_ZONE: u64 = 128;

/// Words of a set of registers: AVX-512 and what the kernel keeps with it has some 340.
const MOST_WORDS: usize = 2048;

/// The places of the stack pointer and of the thread pointer (`fs_base`) in `struct user_regs_struct`.
const STACK_POINTER: usize = 19;
const THREAD_POINTER: usize = 21;

const NT_PRSTATUS: libc::c_long = 1;
const NT_X86_XSTATE: libc::c_long = 0x202;

/// Why the memory of a process was not searched.
#[derive(Debug, Error)]
pub enum Refusal {
    /// Another process traces it.
    #[error(
        "{name} ({pid}) traces it already, and a process can have one tracer only: end that, and record again"
    )]
    Traced {
        /// The tracer.
        pid: u32,
        /// Its name.
        name: String,
    },
    /// It has ended.
    #[error("it ended meanwhile")]
    Ended,
    /// Its pages are not known.
    #[error("its memory can't be listed: {0}")]
    NotListed(io::Error),
    /// A thread did not stop.
    #[error(
        "thread {0} did not stop within {limit} ms: it waits in the kernel (for a disk, or a child), or the machine is too busy",
        limit = PATIENCE.as_millis()
    )]
    NotStopped(u32),
    /// Too many processes have more blocks.
    #[error("only the {0} processes with most blocks are searched: name this one with --pid")]
    TooManyProcesses(usize),
    /// It has too many threads.
    #[error("it has more than {MAX_THREADS} threads")]
    TooManyThreads,
    /// New threads were found each time.
    #[error("it starts threads faster than they can be stopped")]
    NewThreads,
    /// Its memory could not be read in time.
    #[error(
        "its memory could not be read within {0} ms: the machine is too busy; --max-stop TIME allows more"
    )]
    TooSlow(u128),
    /// Reading its memory did not end.
    #[error(
        "reading its memory does not end: a page fault there waits for another program (userfaultfd, FUSE)"
    )]
    Stuck,
    /// Each reading showed more pointers.
    #[error(
        "its program moves pointers all the time: {0} readings while it ran were not enough to see all of them; --max-stop TIME allows a stop \
         that is long enough to read all memory"
    )]
    Restless(u32),
    /// Too many words of it may be addresses.
    #[error("more than {0} words of its memory may be addresses, and heaptrace keeps no more")]
    TooManyWords(usize),
    /// The machine's pages have another size than those that are looked through.
    #[error("this machine's pages don't have 4 KiB")]
    OtherPages,
    /// The kernel does not allow it.
    #[error("the kernel does not allow it: {0}")]
    NotAllowed(#[from] io::Error),
}

impl Refusal {
    /// The refusal if the memory of a process can't be listed.
    pub(super) fn not_listed(error: io::Error) -> Self {
        match sys::is_gone(&error) {
            true => Self::Ended,
            false => Self::NotListed(error),
        }
    }
}

/// A process whose threads are all stopped.
#[derive(Debug)]
pub(super) struct Stopped {
    threads: Vec<Thread>,
    since: Instant,
}

#[derive(Debug)]
struct Thread {
    id: u32,
    /// A signal that it was about to receive when it stopped; 0 if there was none.
    signal: i32,
    is_stopped: bool,
}

/// What the threads hold.
#[derive(Debug, Default)]
pub(super) struct Registers {
    /// The values of all registers of all threads.
    pub(super) words: Vec<u64>,
    /// Where each thread is.
    pub(super) stacks: Vec<Stack>,
}

/// Where a thread is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stack {
    /// The lowest address that it uses of its stack.
    pub(super) lowest: u64,
    /// The end of its thread-local variables.
    pub(super) thread: u64,
}

/// Whether another process traces one already.
pub(super) fn check(pid: u32) -> Result<(), Refusal> {
    match processes::tracer(pid, pid).map_err(|_| Refusal::Ended)? {
        None => Ok(()),
        Some(tracer) => Err(Refusal::Traced {
            pid: tracer,
            name: processes::name(tracer).unwrap_or_default(),
        }),
    }
}

/// The same, but waits for a thread of this process that gave up: it lets the process go when it has ended, shortly after it was joined.
pub(super) fn check_patiently(pid: u32) -> Result<(), Refusal> {
    const TIMES: usize = 50;
    const PAUSE: Duration = Duration::from_millis(1);
    let is_there = |path: String| std::path::Path::new(&path).exists();
    for _ in 0..TIMES {
        match check(pid) {
            Err(Refusal::Traced { pid: tracer, .. })
                if is_there(format!("/proc/self/task/{tracer}"))
                    || !is_there(format!("/proc/{tracer}")) =>
            {
                std::thread::sleep(PAUSE);
            }
            other => return other,
        }
    }
    check(pid)
}

impl Stopped {
    /// Stops all threads of a process. Only the calling thread may use the result.
    pub(super) fn stop(pid: u32) -> Result<Self, Refusal> {
        check(pid)?;
        let mut stopped = Self {
            threads: Vec::new(),
            since: Instant::now(),
        };
        let mut rounds = 0;
        while stopped.seize_others(pid)? {
            rounds += 1;
            if rounds > ROUNDS {
                return Err(Refusal::NewThreads);
            }
            stopped.wait(pid)?;
        }
        stopped.threads.retain(|it| it.is_stopped);
        if stopped.threads.is_empty() {
            return Err(Refusal::Ended);
        }
        Ok(stopped)
    }

    /// When the first thread was asked to stop.
    pub(super) fn since(&self) -> Instant {
        self.since
    }

    /// The number of threads.
    pub(super) fn threads(&self) -> usize {
        self.threads.len()
    }

    /// The registers of all threads.
    pub(super) fn registers(&self) -> Registers {
        let mut registers = Registers::default();
        let mut words = vec![0; MOST_WORDS];
        for thread in &self.threads {
            for kind in [NT_PRSTATUS, NT_X86_XSTATE] {
                let Some(count) = read_registers(thread.id, kind, &mut words) else {
                    continue;
                };
                let read = words.get(..count).unwrap_or_default();
                if kind == NT_PRSTATUS {
                    let value = |at: usize| read.get(at).copied().unwrap_or(0);
                    registers.stacks.push(Stack {
                        lowest: value(STACK_POINTER).saturating_sub(RED_ZONE),
                        thread: value(THREAD_POINTER),
                    });
                }
                registers.words.extend_from_slice(read);
            }
        }
        registers
    }

    /// Attaches to the threads that are not known yet. Returns whether there were any.
    fn seize_others(&mut self, pid: u32) -> Result<bool, Refusal> {
        let known = self.threads.len();
        for id in processes::threads(pid).map_err(|_| Refusal::Ended)? {
            if self.threads.iter().any(|it| it.id == id) {
                continue;
            }
            if self.threads.len() >= MAX_THREADS {
                return Err(Refusal::TooManyThreads);
            }
            match ptrace(request::SEIZE, id, 0, 0) {
                Ok(()) => {}
                Err(_) if processes::has_thread_ended(pid, id) => continue,
                Err(error) => {
                    check(pid)?;
                    return Err(error.into());
                }
            }
            self.threads.push(Thread {
                id,
                signal: 0,
                is_stopped: false,
            });
            // It may have ended meanwhile, which waiting for it shows.
            let _ = ptrace(request::INTERRUPT, id, 0, 0);
        }
        Ok(self.threads.len() > known)
    }

    /// Waits until all threads have stopped.
    fn wait(&mut self, pid: u32) -> Result<(), Refusal> {
        const PAUSE: Duration = Duration::from_micros(20);
        const LONG: Duration = Duration::from_millis(2);
        let since = self.since;
        for thread in &mut self.threads {
            while !thread.is_stopped {
                if let Some(signal) = stop_of(thread.id)? {
                    thread.is_stopped = true;
                    thread.signal = signal;
                    break;
                }
                if since.elapsed() > LONG && processes::has_thread_ended(pid, thread.id) {
                    break;
                }
                if since.elapsed() > PATIENCE {
                    return Err(Refusal::NotStopped(thread.id));
                }
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for thread in &self.threads {
            // A thread that has not stopped yet is let go when this thread ends.
            let _ = ptrace(request::DETACH, thread.id, 0, thread.signal as usize);
        }
    }
}

/// The signal with which a thread has stopped, 0 if there is none; `None` if it has not stopped yet.
fn stop_of(tid: u32) -> io::Result<Option<i32>> {
    // SAFETY: a record of numbers, for which zero is valid.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // Ends are left to others to wait for: the process may be a child that this one has started. The stop is left, too: with it, the kernel would
    // take the signal from the thread, which would be lost if this process were killed now.
    let flags = libc::WSTOPPED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: the kernel writes to the record, which lives until after the call.
    let result = unsafe { libc::waitid(libc::P_PID, tid, &raw mut info, flags) };
    if result != 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ECHILD | libc::EINTR) => Ok(None),
            _ => Err(error),
        };
    }
    // SAFETY: `waitid` fills these fields, or leaves them zero if nothing has stopped.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    if pid == 0 {
        return Ok(None);
    }
    let is_signal = status >> 8 != EVENT_STOP;
    Ok(Some(if is_signal { status & 0x7f } else { 0 }))
}

/// Reads a set of registers. Returns the number of words.
fn read_registers(tid: u32, kind: libc::c_long, words: &mut [u64]) -> Option<usize> {
    let mut target = libc::iovec {
        iov_base: words.as_mut_ptr().cast(),
        iov_len: size_of_val(words),
    };
    let at = &raw mut target as usize;
    ptrace(request::GETREGSET, tid, kind as usize, at).ok()?;
    Some(target.iov_len / size_of::<u64>())
}

fn ptrace(request: libc::c_uint, tid: u32, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: the only request that takes a pointer is that for registers, whose `data` is a list of one buffer that lives until after
    // the call.
    unsafe { ptrace::call(request, tid, address, data) }
}
