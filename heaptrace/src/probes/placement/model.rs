//! A function, the needs of its program, the location of its probe, and the rules of an architecture.
//!
//! Stage: probes. Plain types: it must not know any architecture.

use std::fmt;

use heaptrace_common::arguments::{Argument, EntryProgram};
use heaptrace_common::cookie::{ARGUMENTS, Register};

use super::skipped::Skipped;

/// A function, as far as it could be read.
#[derive(Clone, Copy, Debug)]
pub struct Function<'a> {
    /// Its code from its entry on. It may be cut, or continue after the function's end.
    pub code: &'a [u8],
    /// Size in bytes, if its symbol has one.
    pub size: Option<u64>,
}

/// The arguments that the program at a function's entry needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Which arguments the program reads.
    pub arguments: [bool; ARGUMENTS],
    /// The position of an argument, if calls in which it is NULL need not be seen.
    pub ignores_null: Option<usize>,
}

impl Needs {
    /// The needs of an unknown program: every argument.
    pub const ALL: Self = Self {
        arguments: [true; ARGUMENTS],
        ignores_null: None,
    };

    /// The needs of one of the kernel programs, from the table that the kernel program is compiled with.
    pub fn of(program: &str) -> Self {
        let Some(program) = EntryProgram::find(program) else {
            return Self::ALL;
        };
        let pointer = program.position(Argument::Pointer);
        Self {
            arguments: program.reads(),
            ignores_null: pointer.filter(|_| program.ignores_null),
        }
    }
}

/// The location of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Offset from the function's entry, in bytes.
    pub offset: u64,
    /// The registers that hold the arguments there. An entry for an unneeded argument has no meaning.
    pub registers: [Register; ARGUMENTS],
    /// The instruction there.
    pub instruction: String,
    /// Why the probe is there.
    pub reason: Reason,
}

impl Placement {
    /// The entry, which is always a correct location.
    pub(super) fn entry(instruction: String, reason: Reason) -> Self {
        Self {
            offset: 0,
            registers: Register::PASSED,
            instruction,
            reason,
        }
    }

    /// Whether the kernel has to execute the instruction out of line.
    pub fn is_stepped(&self) -> bool {
        !matches!(self.reason, Reason::Emulated(_) | Reason::NoRules)
    }
}

/// Why a probe is at its location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The kernel emulates this kind of instruction.
    Emulated(&'static str),
    /// At the entry: there are no rules for this architecture.
    NoRules,
    /// At the entry: the code can't be read.
    Unreadable,
    /// At the entry: no emulated instruction comes before the arguments or the stack pointer change, or the
    /// function ends.
    NoneInTime,
    /// At the entry: the function may jump to every other location.
    JumpedTo,
    /// At the entry: the targets of the function's jumps are unknown.
    Untold(&'static str),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Emulated(name) => write!(f, "{name}"),
            Self::NoRules => f.write_str("there are no rules for this architecture"),
            Self::Unreadable => f.write_str("its code can't be read"),
            Self::NoneInTime => f.write_str(
                "no emulated instruction comes before its arguments or its stack pointer change",
            ),
            Self::JumpedTo => f.write_str("it jumps back to every cheaper location"),
            Self::Untold(why) => f.write_str(why),
        }
    }
}

/// The rules of a processor architecture.
pub trait Architecture {
    /// The location where a probe on a function costs least.
    fn place(&self, function: Function<'_>, needs: Needs) -> Placement;

    /// The instructions from the entry of a function up to and with the one at an offset, for a copy. `None` if they
    /// can't be copied.
    fn skipped(&self, code: &[u8], probed: u64) -> Option<Skipped>;
}
