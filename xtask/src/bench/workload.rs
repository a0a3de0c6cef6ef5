//! The small programs that are measured by the pair, one entry each.
//!
//! Part of bench. A workload must not know in which modes it is measured: it prints `ns_per_operation` of itself.

use std::ffi::OsString;

use anyhow::Result;

use super::mode::{BYSTANDER, EXACT, FLOOR, Mode, SAMPLED, UNTRACED};
use crate::run;

/// A program to measure.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Its name in the table.
    pub name: &'static str,
    /// What one operation is.
    pub operation: &'static str,
    /// How many calls deep it allocates, where that is what differs.
    pub depth: Option<u32>,
    /// The modes that it is measured in; the first is what the others are compared with.
    pub modes: &'static [Mode],
    /// Its source.
    source: &'static str,
    /// Flags for the compiler.
    flags: &'static [&'static str],
}

const ALL_MODES: &[Mode] = &[UNTRACED, BYSTANDER, FLOOR, SAMPLED, EXACT];

/// Who merely stands by pays by the call, however deep it is.
const OWN_MODES: &[Mode] = &[UNTRACED, FLOOR, SAMPLED, EXACT];

/// All of them, in the order of the table.
pub const WORKLOADS: &[Workload] = &[
    Workload {
        name: "malloc/free pair",
        operation: "one `malloc(64)` and its `free`, in a loop that does nothing else: the worst case",
        depth: None,
        modes: ALL_MODES,
        source: "xtask/bench/pair.c",
        flags: &[],
    },
    Workload {
        name: "fork and wait",
        operation: "one `fork`, the child's `_exit`, and the `waitpid` for it: what children inherit, they inherit here",
        depth: None,
        modes: ALL_MODES,
        source: "xtask/bench/fork.c",
        flags: &[],
    },
    without_frame_pointers("a pair 1 call deep", 1),
    without_frame_pointers("a pair 8 calls deep", 8),
    without_frame_pointers("a pair 32 calls deep", 32),
    without_frame_pointers("a pair 120 calls deep", 120),
    with_frame_pointers("a pair 8 calls deep, with frame pointers", 8),
    with_frame_pointers("a pair 120 calls deep, with frame pointers", 120),
];

/// A pair of `malloc` and `free` this deep; with what starts a thread, the deepest is just below the 128
/// frames that are walked by default.
const fn without_frame_pointers(name: &'static str, depth: u32) -> Workload {
    Workload {
        name,
        operation: "one `malloc(64)` and its `free`, so many calls deep, in code without frame pointers",
        depth: Some(depth),
        modes: OWN_MODES,
        source: "xtask/bench/depth.c",
        flags: &["-fomit-frame-pointer"],
    }
}

const fn with_frame_pointers(name: &'static str, depth: u32) -> Workload {
    Workload {
        name,
        operation: "one `malloc(64)` and its `free`, so many calls deep, in code that keeps frame pointers",
        depth: Some(depth),
        modes: OWN_MODES,
        source: "xtask/bench/depth.c",
        flags: &["-fno-omit-frame-pointer"],
    }
}

impl Workload {
    /// Makes it ready, and gives the command that runs it for so many seconds on so many threads.
    pub fn command(&self, seconds: f64, threads: usize) -> Result<Vec<OsString>> {
        let flags = [&["-O2"], self.flags].concat();
        let mut command: Vec<OsString> = vec![
            run::compile_c(self.source, &flags)?.into(),
            seconds.to_string().into(),
            threads.to_string().into(),
        ];
        command.extend(self.depth.map(|depth| depth.to_string().into()));
        Ok(command)
    }

    /// Whether it keeps frame pointers; with its depth, what differs in nothing else.
    pub fn has_frame_pointers(&self) -> bool {
        self.flags.contains(&"-fno-omit-frame-pointer")
    }
}
