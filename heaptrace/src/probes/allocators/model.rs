//! What discovery yields: allocators, and where in which file to probe them.
//!
//! Stage: probes. Plain values; knows neither how they are found nor how they are probed.

use std::fmt;
use std::fs::File;

use crate::open::FileId;
use crate::probes::placement::Placed;

/// How it is learned that a function has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnReturn {
    /// Nothing of its return is of interest.
    Ignored,
    /// By a return probe.
    Probed,
    /// By probes on its return instructions: it may throw, and an exception can't pass the trampoline
    /// of a return probe.
    Instructions,
    /// By a return probe, with a program of its own: it maps memory, or unmaps it.
    Mapped,
}

/// The kernel programs that go to a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hook {
    /// Program at its entry.
    pub entry: &'static str,
    /// What is done about its return.
    pub on_return: OnReturn,
}

impl OnReturn {
    /// The program of its return probe, if it has one.
    pub fn program(self) -> Option<&'static str> {
        match self {
            Self::Probed => Some("alloc_return"),
            Self::Mapped => Some("mapping_return"),
            Self::Ignored | Self::Instructions => None,
        }
    }
}

/// Program at a return instruction.
pub const RET_PROGRAM: &str = "alloc_at_ret";

/// A place to probe: one address, under all the names that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Offset in the file.
    pub offset: u64,
    /// Size of the function, if its symbol tells.
    pub size: Option<u64>,
    /// Where in the function its probe goes.
    pub placed: Placed,
    /// How far the allocator's code reaches before and behind it.
    pub reach: (u64, u64),
    /// The programs.
    pub hook: Hook,
    /// Names of the functions there.
    pub names: Vec<String>,
    /// Kind of the allocator that it belongs to.
    pub kind: String,
}

/// The allocators in a file.
#[derive(Debug)]
pub struct Allocator {
    /// Path for reports, as the process sees it.
    pub path: String,
    /// The file, held open: probes go to this very file, whatever becomes of its path.
    pub file: File,
    /// Its identity.
    pub id: FileId,
    /// Where to probe it.
    pub places: Vec<Place>,
    /// Offsets of return instructions to probe.
    pub rets: Vec<u64>,
    /// Where in the file the code is that maps memory for the allocator's blocks, or for threads' stacks:
    /// first and last offset of each part.
    pub own_code: Vec<(u64, u64)>,
    /// What is not probed, and why: a sentence each.
    pub notes: Vec<String>,
}

impl Allocator {
    /// The kinds of the allocators, in the order in which they were recognised.
    pub fn kinds(&self) -> Vec<&str> {
        let mut kinds: Vec<&str> = Vec::new();
        for place in &self.places {
            if !kinds.contains(&place.kind.as_str()) {
                kinds.push(&place.kind);
            }
        }
        kinds
    }

    /// Names of the functions of an allocator that are probed.
    pub fn hook_names(&self, kind: &str) -> Vec<String> {
        self.places
            .iter()
            .filter(|place| place.kind == kind)
            .flat_map(|place| place.names.iter().cloned())
            .collect()
    }
}

/// What can be said of a file.
#[derive(Debug)]
pub(super) enum Finding {
    /// It has allocators that can be probed.
    Allocator(Allocator),
    /// It has one that can't, or something else that allocates; a reason.
    Unprobed(Unprobed),
    /// It has none.
    Nothing,
}

/// Something that allocates and can't be probed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Unprobed {
    /// The file.
    pub path: String,
    /// Why.
    pub reason: String,
}

impl fmt::Display for Unprobed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.path, self.reason)
    }
}
