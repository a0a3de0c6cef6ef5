//! The result of discovery: allocators, and the locations of their probes.
//!
//! Stage: probes. Plain values; must not know how allocators are found or probed.

use std::fmt;
use std::fs::File;

use crate::open::FileId;
use crate::probes::placement::{Placed, Skipped};

/// How the return of a function is observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnReturn {
    /// Not at all.
    Ignored,
    /// By a return probe.
    Probed,
    /// By probes on its return instructions. The function may throw, and an exception can't pass the trampoline
    /// of a return probe.
    Instructions,
    /// By a return probe with a program for functions that map or unmap memory.
    Mapped,
}

/// The kernel programs on a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hook {
    /// Name of the program at its entry.
    pub entry: &'static str,
    /// How its return is observed.
    pub on_return: OnReturn,
}

impl OnReturn {
    /// Name of the program of its return probe, if it has one.
    pub fn program(self) -> Option<&'static str> {
        match self {
            Self::Probed => Some("alloc_return"),
            Self::Mapped => Some("mapping_return"),
            Self::Ignored | Self::Instructions => None,
        }
    }
}

/// Name of the program at a return instruction.
pub const RET_PROGRAM: &str = "alloc_at_ret";

/// A function to probe: one address with all of its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbedFunction {
    /// Offset in the file.
    pub offset: u64,
    /// Size of the function, if its symbol has one.
    pub size: Option<u64>,
    /// Location of the probe in the function.
    pub placed: Placed,
    /// Its instructions up to and with the probed one, for a copy. `None` if they can't be copied.
    pub skipped: Option<Skipped>,
    /// How many bytes of the allocator's code are before and behind the entry.
    pub reach: (u64, u64),
    /// The programs on it.
    pub hook: Hook,
    /// Its names.
    pub names: Vec<String>,
    /// Kind of the allocator that it belongs to.
    pub kind: String,
}

impl ProbedFunction {
    /// Where the allocator's code begins and ends in a process that has the function at an address.
    pub fn code_at(&self, address: u64) -> (u64, u64) {
        let (before, behind) = self.reach;
        (
            address.saturating_sub(before),
            address.saturating_add(behind),
        )
    }
}

/// The allocators in a file.
#[derive(Debug)]
pub struct Allocator {
    /// Path in the process's file system, for reports.
    pub path: String,
    /// The file, held open: probes are defined in exactly this file, even if its path changes.
    pub file: File,
    /// Its identity.
    pub id: FileId,
    /// Its functions.
    pub functions: Vec<ProbedFunction>,
    /// Offsets of return instructions to probe.
    pub returns: Vec<u64>,
    /// Code that maps memory for the allocator's blocks or for threads' stacks: start and end offset of
    /// each part in the file.
    pub own_code: Vec<(u64, u64)>,
    /// Functions that are not probed, each with the reason in a sentence.
    pub notes: Vec<String>,
}

impl Allocator {
    /// The kinds of the allocators, in the order in which they were recognized.
    pub fn kinds(&self) -> Vec<&str> {
        let mut kinds: Vec<&str> = Vec::new();
        for function in &self.functions {
            if !kinds.contains(&function.kind.as_str()) {
                kinds.push(&function.kind);
            }
        }
        kinds
    }

    /// Leaves out Rust's functions that free, if none of those that allocate is probed: the blocks are of another allocator,
    /// whose own functions free them in the end. They have no fast path, and every call of them would trap.
    pub fn drop_lone_frees(&mut self) {
        const RUST: &str = "rust";
        let allocates = |it: &ProbedFunction| it.hook.on_return != OnReturn::Ignored;
        if !self
            .functions
            .iter()
            .any(|it| it.kind == RUST && allocates(it))
        {
            self.functions.retain(|it| it.kind != RUST);
        }
    }

    /// Names of the functions of an allocator that are probed.
    pub fn hook_names(&self, kind: &str) -> Vec<String> {
        self.functions
            .iter()
            .filter(|function| function.kind == kind)
            .flat_map(|function| function.names.iter().cloned())
            .collect()
    }
}

/// The result for one file.
#[derive(Debug)]
pub(super) enum Finding {
    /// It has allocators that can be probed.
    Allocator(Allocator),
    /// It has an allocator, or other code that allocates, that can't be probed.
    Unprobed(Unprobed),
    /// It has no allocator.
    Nothing,
}

/// A file with an allocator that can't be probed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Unprobed {
    /// The file.
    pub path: String,
    /// The reason.
    pub reason: String,
}

impl fmt::Display for Unprobed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.path, self.reason)
    }
}
