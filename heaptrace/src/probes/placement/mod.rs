//! Placement: where in a function a probe costs least, and where the arguments stand there.
//!
//! Stage: probes. What is emulated, and how code is read, is each architecture's own; one without
//! rules probes the entry. Code comes from files of traced processes and may be anything. Knows nothing
//! of attaching.

mod branches;
pub mod emulated;
mod placed;
#[cfg(test)]
mod tests;
mod x86;

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use heaptrace_common::cookie::{ARGUMENTS, Register};

pub use placed::Placed;

use emulated::KernelVersion;

/// Most bytes of a function that are looked at.
const MAX_BYTES: u64 = 1 << 16;

/// A function, as far as it could be read.
#[derive(Clone, Copy, Debug)]
pub struct Function<'a> {
    /// Its code from its entry on; may be cut short, or go on behind its end.
    pub code: &'a [u8],
    /// Bytes of it, where its symbol says.
    pub size: Option<u64>,
}

/// What the program at a function's entry needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Which arguments it reads.
    pub arguments: [bool; ARGUMENTS],
    /// The argument, if any, with which a call is of no interest where it is NULL.
    pub ignores_null: Option<usize>,
}

impl Needs {
    /// What a program needs that is not known: everything.
    pub const ALL: Self = Self {
        arguments: [true; ARGUMENTS],
        ignores_null: None,
    };

    /// What one of the kernel programs needs.
    pub fn of(program: &str) -> Self {
        let reads = |read: &[usize]| Self {
            arguments: std::array::from_fn(|argument| read.contains(&argument)),
            ignores_null: None,
        };
        let frees = |pointer| Self {
            ignores_null: Some(pointer),
            ..reads(&[pointer])
        };
        match program {
            "free_entry" => frees(0),
            "heap_free_entry" => frees(1),
            "malloc_entry" | "new_entry" => reads(&[0]),
            "aligned_entry" | "heap_new_entry" => reads(&[1]),
            "heap_aligned_entry" => reads(&[2]),
            "calloc_entry" | "realloc_entry" | "new_n_entry" | "reallocf_entry"
            | "resize_entry" | "new_realloc_entry" => reads(&[0, 1]),
            "posix_memalign_entry" | "aligned_realloc_entry" => reads(&[0, 2]),
            "heap_calloc_entry"
            | "heap_new_n_entry"
            | "heap_realloc_entry"
            | "heap_reallocf_entry" => reads(&[1, 2]),
            "heap_aligned_calloc_entry" => reads(&[2, 3]),
            "mmap_entry" => reads(&[1, 3]),
            "munmap_entry" => reads(&[0, 1]),
            "rust_realloc_entry" => reads(&[0, 3]),
            "heap_aligned_realloc_entry" => reads(&[1, 3]),
            "reallocarray_entry" | "new_reallocn_entry" => reads(&[0, 1, 2]),
            "heap_reallocarray_entry" => reads(&[1, 2, 3]),
            _ => Self::ALL,
        }
    }
}

/// Where a probe goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Bytes behind the function's entry.
    pub offset: u64,
    /// Where the arguments stand there; what isn't needed may stand anywhere.
    pub registers: [Register; ARGUMENTS],
    /// The instruction there.
    pub instruction: String,
    /// Why there.
    pub reason: Reason,
}

impl Placement {
    /// The entry, as a place that is always right.
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

/// Why a probe stands where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The kernel emulates this kind of instruction.
    Emulated(&'static str),
    /// At the entry: nothing is known of this architecture.
    NoRules,
    /// At the entry: the code can't be read.
    Unreadable,
    /// At the entry: no emulated instruction comes before the arguments or the stack move, or the
    /// function ends.
    NoneInTime,
    /// At the entry: every other place may be jumped to.
    JumpedTo,
    /// At the entry: it can't be told where the function jumps to.
    Untold(&'static str),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Emulated(name) => write!(f, "{name}"),
            Self::NoRules => f.write_str("nothing is known of this architecture"),
            Self::Unreadable => f.write_str("its code can't be read"),
            Self::NoneInTime => {
                f.write_str("no emulated instruction comes before its arguments or its stack move")
            }
            Self::JumpedTo => f.write_str("it jumps back to where a cheaper place would be"),
            Self::Untold(why) => f.write_str(why),
        }
    }
}

/// A processor's code, and what the kernel does with it.
pub trait Architecture {
    /// Where a probe on a function costs least.
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
    /// For the code of a file, under a kernel.
    pub fn new(file: &'a File, kernel: KernelVersion) -> Self {
        let architecture: Box<dyn Architecture> = if is_x86_64(file) {
            Box::new(x86::X86 { kernel })
        } else {
            Box::new(Entry)
        };
        Self { file, architecture }
    }

    /// Where a probe goes on a function that begins at an offset in the file.
    ///
    /// Code of the file goes on for `behind` bytes, and other functions of interest are at `others`.
    pub fn place(
        &self,
        offset: u64,
        size: Option<u64>,
        behind: u64,
        others: impl Iterator<Item = u64>,
        needs: Needs,
    ) -> Placement {
        // Nothing goes past the next function, whatever the symbol's size says.
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

/// Whether a file is code for this processor, 64 bits.
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
