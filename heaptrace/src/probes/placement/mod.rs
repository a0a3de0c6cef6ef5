//! Placement: the location in a function where a probe costs least, and the registers that hold the arguments
//! there.
//!
//! Stage: probes. Each architecture has its own rules for emulated instructions and for reading code; without
//! rules, the entry is probed. Code comes from files of traced processes and may be anything. It must not
//! know how probes are attached.

mod branches;
pub mod emulated;
mod placed;
#[cfg(test)]
mod tests;
mod x86;

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use heaptrace_common::arguments::{Argument, EntryProgram};
use heaptrace_common::cookie::{ARGUMENTS, Register};

pub use placed::Placed;

use emulated::KernelVersion;

/// Maximum bytes of a function that are read.
const MAX_BYTES: u64 = 1 << 16;

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
    fn entry(instruction: String, reason: Reason) -> Self {
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
}

/// Probes every function at its entry.
struct Entry;

impl Architecture for Entry {
    fn place(&self, _: Function<'_>, _: Needs) -> Placement {
        Placement::entry(String::new(), Reason::NoRules)
    }
}

/// Places the probes of one file.
pub struct Placer<'a> {
    file: &'a File,
    architecture: Box<dyn Architecture>,
}

impl<'a> Placer<'a> {
    /// A placer for the code of a file, on a kernel.
    pub fn new(file: &'a File, kernel: KernelVersion) -> Self {
        let architecture: Box<dyn Architecture> = if is_x86_64(file) {
            Box::new(x86::X86 { kernel })
        } else {
            Box::new(Entry)
        };
        Self { file, architecture }
    }

    /// Places a probe on the function at an offset in the file.
    ///
    /// The file's code continues for `behind` bytes, and other probed functions are at `others`.
    pub fn place(
        &self,
        offset: u64,
        size: Option<u64>,
        behind: u64,
        others: impl Iterator<Item = u64>,
        needs: Needs,
    ) -> Placement {
        // The function ends before the next one, whatever the symbol's size is.
        let next = others.filter_map(|other| other.checked_sub(offset));
        let room = next.filter(|gap| *gap > 0).min().unwrap_or(u64::MAX);
        let size = size.filter(|size| *size > 0);
        let room = room.min(behind).min(size.unwrap_or(u64::MAX));
        let mut code = vec![0; room.min(MAX_BYTES) as usize];
        match self.file.read_exact_at(&mut code, offset) {
            Ok(()) => self
                .architecture
                .place(Function { code: &code, size }, needs),
            Err(_) => Placement::entry(String::new(), Reason::Unreadable),
        }
    }
}

/// Whether a file is 64-bit code for this processor.
fn is_x86_64(file: &File) -> bool {
    const MACHINE_X86_64: [u8; 2] = [62, 0];
    const CLASS_64: u8 = 2;
    let mut head = [0; 20];
    let is_read = file.read_exact_at(&mut head, 0).is_ok();
    cfg!(target_arch = "x86_64")
        && is_read
        && head.starts_with(b"\x7fELF")
        && head[4] == CLASS_64
        && head[18..] == MACHINE_X86_64
}
