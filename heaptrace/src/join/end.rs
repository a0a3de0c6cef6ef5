//! How a process ended, and when.
//!
//! Stage: join. Knows nothing of what the process held.

use heaptrace_common::wire::{self, ProcessEnd};

/// The bits of a status that `wait` returns: the signal, whether there is a core file, and the exit status.
const SIGNAL: u32 = 0x7f;
const CORE: u32 = 0x80;
const STATUS_SHIFT: u32 = 8;

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// What ended it.
    pub cause: EndCause,
    /// When, in nanoseconds since the run began.
    pub at_ns: u64,
}

/// The control group whose limit of memory a process had reached when the kernel killed it for lack of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KilledAt {
    /// Its path; raw, to be escaped by every output.
    pub group: String,
    /// Its limit, in bytes.
    pub limit: u64,
    /// How often the kernel had killed a process there when this process began, or when the group was read for processes that began
    /// before it, if no traced process was killed since.
    pub kills_before: u64,
    /// The same after its end.
    pub kills: u64,
}

/// What ended a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// It called `exec`, and continued as another program.
    Exec,
    /// It exited with this status.
    Exit(u8),
    /// A signal.
    Signal {
        /// Its number.
        number: u8,
        /// Whether the kernel wrote a core file.
        has_core: bool,
    },
    /// The kernel killed it for lack of memory.
    OutOfMemory,
}

impl EndCause {
    pub(super) fn of(event: &ProcessEnd) -> Self {
        if event.reason == wire::end::EXEC {
            return Self::Exec;
        }
        match (event.status & SIGNAL) as u8 {
            0 => Self::Exit((event.status >> STATUS_SHIFT) as u8),
            // A process that was chosen may have ended by itself before it was killed.
            number if event.out_of_memory != 0 && i32::from(number) == libc::SIGKILL => {
                Self::OutOfMemory
            }
            number => Self::Signal {
                number,
                has_core: event.status & CORE != 0,
            },
        }
    }

    /// Whether it is a signal that a fault of the program raises.
    pub fn is_crash(self) -> bool {
        const FAULTS: [i32; 7] = [
            libc::SIGILL,
            libc::SIGTRAP,
            libc::SIGABRT,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGSEGV,
            libc::SIGSYS,
        ];
        matches!(self, Self::Signal { number, .. } if FAULTS.contains(&number.into()))
    }

    /// Whether the process had no chance to end in order: it crashed, or it was killed.
    pub fn is_sudden(self) -> bool {
        let is_killed =
            matches!(self, Self::Signal { number, .. } if i32::from(number) == libc::SIGKILL);
        self == Self::OutOfMemory || is_killed || self.is_crash()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::process_end;
    use super::*;

    fn cause(status: u32, out_of_memory: u32) -> EndCause {
        EndCause::of(&ProcessEnd {
            status,
            out_of_memory,
            ..process_end(1, wire::end::EXIT)
        })
    }

    /// Check that a status means what `wait` says of it, and that only a killed process counts as killed for lack of memory.
    #[test]
    fn statuses_are_understood() {
        let signal = |number, has_core| EndCause::Signal { number, has_core };
        for (status, out_of_memory, expected, is_crash, is_sudden) in [
            (0, 0, EndCause::Exit(0), false, false),
            (3 << 8, 0, EndCause::Exit(3), false, false),
            (255 << 8, 1, EndCause::Exit(255), false, false),
            (15, 0, signal(15, false), false, false),
            (9, 0, signal(9, false), false, true),
            (9, 1, EndCause::OutOfMemory, false, true),
            (11, 0, signal(11, false), true, true),
            (6 | 0x80, 1, signal(6, true), true, true),
        ] {
            let cause = cause(status, out_of_memory);
            assert_eq!(
                (cause, cause.is_crash(), cause.is_sudden()),
                (expected, is_crash, is_sudden),
                "{status} {out_of_memory}"
            );
        }
        let exec = EndCause::of(&process_end(1, wire::end::EXEC));
        assert_eq!((exec, exec.is_sudden()), (EndCause::Exec, false));
    }
}
