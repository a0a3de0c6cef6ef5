//! System calls made by a thread of a target, through ptrace.
//!
//! Stage: probes. The thread is attached without being stopped, and stops by itself. Must not know which calls are made, nor
//! why. The process that attached the thread must not be killed while the thread is borrowed; everything else that ends
//! it leaves the thread as it was.

use std::io;
use std::mem::MaybeUninit;

use libc::{c_int, c_long, c_uint, pid_t};

use crate::ptrace::{self, EVENT_STOP, request};

/// Stops at system calls are told apart from signals.
const TRACESYSGOOD: usize = 1;

/// Bytes of the kernel's signal mask.
const MASK_BYTES: usize = 8;

/// Code segment of 64-bit programs.
const USER_CODE_64: u64 = 0x33;

/// Signals that the kernel sends for what a thread itself does. If the thread blocks such a signal, the kernel resets the
/// signal's handler, so they are never blocked here.
const OWN_SIGNALS: [c_int; 6] = [
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGSYS,
];

/// Why a thread can't make a call.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The thread is gone, and with it all that was done for it.
    #[error("it has ended, or runs another program")]
    Ended,
    /// The call has returned this error.
    #[error("{name} failed in it: {}", io::Error::from_raw_os_error(*.error))]
    Call {
        /// Its name.
        name: &'static str,
        /// The number of the error.
        error: c_int,
    },
    /// It stopped where no call can be made.
    #[error("{0}")]
    Unsuitable(&'static str),
}

/// Why an attached thread has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It is about to receive a signal.
    Signal(c_int),
    /// Its process is stopped (SIGSTOP).
    Group,
    /// It has begun or ended a system call.
    SystemCall,
    /// Anything else. The thread may continue.
    Event,
}

/// The registers of a thread.
pub(super) type Registers = libc::user_regs_struct;

/// An attached thread. It is detached when this process ends, and stays undisturbed if it runs then.
pub(super) struct Thread(pid_t);

impl Thread {
    /// Attaches to a thread without stopping it.
    pub(super) fn seize(tid: u32) -> io::Result<Self> {
        let thread = Self(tid as pid_t);
        thread.ptrace(request::SEIZE, 0, TRACESYSGOOD)?;
        Ok(thread)
    }

    /// Why the thread has stopped. `None` if it has not.
    pub(super) fn stop(&self) -> Result<Option<Stop>, Failure> {
        self.wait(libc::WNOHANG)
    }

    fn wait(&self, flags: c_int) -> Result<Option<Stop>, Failure> {
        let mut status = 0;
        let waited = loop {
            // SAFETY: the status is valid; the thread is traced by this process.
            let waited = unsafe { libc::waitpid(self.0, &raw mut status, libc::__WALL | flags) };
            if waited != -1 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                break waited;
            }
        };
        match waited {
            0 => Ok(None),
            -1 => Err(Failure::Ended),
            _ if !libc::WIFSTOPPED(status) => Err(Failure::Ended),
            _ => Ok(Some(stop_of(status))),
        }
    }

    /// Continues the thread as if it were not attached.
    pub(super) fn pass_on(&self, stop: Stop) -> Result<(), Failure> {
        let (request, signal) = match stop {
            Stop::Signal(signal) => (request::CONT, signal),
            Stop::Group => (request::LISTEN, 0),
            Stop::SystemCall | Stop::Event => (request::CONT, 0),
        };
        self.resume(request, signal)
    }

    fn resume(&self, request: c_uint, signal: c_int) -> Result<(), Failure> {
        let resumed = self.ptrace(request, 0, signal as usize);
        resumed.map_err(|_| Failure::Ended)
    }

    pub(super) fn registers(&self) -> Result<Registers, Failure> {
        self.get(request::GETREGS, 0)
    }

    /// The address of the area that names the thread's restartable sequence (`struct rseq`). `None` if it has none, or if the
    /// kernel can't tell.
    pub(super) fn rseq(&self) -> Option<u64> {
        /// The first of the kernel's `struct ptrace_rseq_configuration` is the address.
        type Configuration = [u64; 3];
        let size = size_of::<Configuration>();
        let found = self.get::<Configuration>(request::GET_RSEQ_CONFIGURATION, size);
        found.ok().map(|[area, ..]| area).filter(|area| *area != 0)
    }

    /// Whether the kernel has sent the signal by which the thread is stopped for what the thread did.
    fn caused_by_itself(&self) -> bool {
        let info: Result<libc::siginfo_t, Failure> = self.get(request::GETSIGINFO, 0);
        info.is_ok_and(|info| info.si_code > 0)
    }

    /// Detaches a thread that is about to receive a signal, which is dropped.
    pub(super) fn let_go(&self) -> Result<(), Failure> {
        self.resume(request::DETACH, 0)
    }

    fn get<T>(&self, request: c_uint, address: usize) -> Result<T, Failure> {
        let mut value = MaybeUninit::<T>::zeroed();
        let got = self.ptrace(request, address, value.as_mut_ptr() as usize);
        got.map_err(|_| Failure::Ended)?;
        // SAFETY: all types that are read consist of integers, and the kernel has filled the value.
        Ok(unsafe { value.assume_init() })
    }

    fn set<T>(&self, request: c_uint, address: usize, value: &T) -> Result<(), Failure> {
        let set = self.ptrace(request, address, std::ptr::from_ref(value) as usize);
        set.map_err(|_| Failure::Ended)
    }

    fn ptrace(&self, request: c_uint, address: usize, data: usize) -> io::Result<()> {
        // SAFETY: where a request takes a pointer, the callers above pass one to a value of the right type.
        unsafe { ptrace::call(request, self.0 as u32, address, data) }
    }
}

fn stop_of(status: c_int) -> Stop {
    let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
    match event {
        0 if signal == libc::SIGTRAP | 0x80 => Stop::SystemCall,
        0 => Stop::Signal(signal),
        EVENT_STOP if signal != libc::SIGTRAP => Stop::Group,
        _ => Stop::Event,
    }
}

/// A stopped thread that makes system calls for this process. It blocks all signals meanwhile.
pub(super) struct Borrowed<'a> {
    thread: &'a Thread,
    registers: Registers,
    mask: u64,
    /// The address of a `syscall` instruction.
    instruction: u64,
    /// Signals that arrived although they could not be delivered.
    held: Vec<c_int>,
}

impl<'a> Borrowed<'a> {
    /// Borrows a thread that is about to receive a signal. The signal is dropped.
    pub(super) fn take(thread: &'a Thread, instruction: u64) -> Result<Self, Failure> {
        let registers = thread.registers()?;
        if registers.cs != USER_CODE_64 {
            return Err(Failure::Unsuitable("it runs 32-bit code"));
        }
        if registers.orig_rax as i64 >= 0 {
            return Err(Failure::Unsuitable("it was stopped in a system call"));
        }
        let mask: u64 = thread.get(request::GETSIGMASK, MASK_BYTES)?;
        let own = OWN_SIGNALS.iter().fold(0, |own, signal| own | bit(*signal));
        let blocked = !own | (mask & own);
        thread.set(request::SETSIGMASK, MASK_BYTES, &blocked)?;
        Ok(Self {
            thread,
            registers,
            mask,
            instruction,
            held: Vec::new(),
        })
    }

    /// Makes a system call. `name` is for messages.
    pub(super) fn call(
        &mut self,
        name: &'static str,
        number: c_long,
        arguments: &[u64],
    ) -> Result<u64, Failure> {
        let argument = |at: usize| arguments.get(at).copied().unwrap_or(0);
        let registers = Registers {
            rip: self.instruction,
            rax: number as u64,
            // Not in a system call: the kernel must not restart one.
            orig_rax: u64::MAX,
            rdi: argument(0),
            rsi: argument(1),
            rdx: argument(2),
            r10: argument(3),
            r8: argument(4),
            r9: argument(5),
            ..self.registers
        };
        self.thread.set(request::SETREGS, 0, &registers)?;
        self.run_to_system_call()?;
        self.run_to_system_call()?;
        let result = self.thread.registers()?.rax as i64;
        match result {
            -4095..=-1 => Err(Failure::Call {
                name,
                error: -result as c_int,
            }),
            _ => Ok(result as u64),
        }
    }

    /// Runs to the beginning of a system call, or from there to its end.
    fn run_to_system_call(&mut self) -> Result<(), Failure> {
        let mut signal = 0;
        loop {
            self.thread.resume(request::SYSCALL, signal)?;
            signal = 0;
            match self.thread.wait(0)? {
                Some(Stop::SystemCall) => return Ok(()),
                // The thread is stopped with its process later, when it is given back.
                Some(Stop::Signal(libc::SIGSTOP)) => signal = libc::SIGSTOP,
                Some(Stop::Signal(number)) => {
                    if self.thread.caused_by_itself() {
                        return Err(Failure::Unsuitable("it can't make a system call"));
                    }
                    self.held.push(number);
                }
                Some(Stop::Group | Stop::Event) | None => {}
            }
        }
    }

    /// Restores the thread as it was, and detaches it.
    pub(super) fn give_back(self) -> Result<(), Failure> {
        self.thread.set(request::SETREGS, 0, &self.registers)?;
        self.thread
            .set(request::SETSIGMASK, MASK_BYTES, &self.mask)?;
        // At most one can arrive with the thread. More than one means that another process sends signals of faults.
        let signal = self.held.last().copied().unwrap_or(0);
        self.thread.resume(request::DETACH, signal)
    }
}

fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the stops of a thread are told apart by the status that the kernel reports.
    #[test]
    fn stops_are_told_apart() {
        let status = |signal: c_int, event: c_int| (event << 16) | (signal << 8) | 0x7f;
        let (trap, stop) = (libc::SIGTRAP, libc::SIGSTOP);
        assert_eq!(stop_of(status(trap | 0x80, 0)), Stop::SystemCall);
        assert_eq!(stop_of(status(trap, 0)), Stop::Signal(trap));
        assert_eq!(stop_of(status(stop, 0)), Stop::Signal(stop));
        assert_eq!(stop_of(status(stop, EVENT_STOP)), Stop::Group);
        assert_eq!(stop_of(status(trap, EVENT_STOP)), Stop::Event);
    }
}
