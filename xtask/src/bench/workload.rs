//! The small programs that are measured per operation, one entry each.
//!
//! Part of bench. A workload must not know in which modes it is measured; it prints `ns_per_operation`
//! itself.

use std::ffi::OsString;

use anyhow::Result;

use super::mode::{BYSTANDER, EXACT, FLOOR, Mode, SAMPLED, UNTRACED};
use crate::run;

/// A program to measure.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Its name in the table.
    pub name: &'static str,
    /// One operation, in words.
    pub operation: &'static str,
    /// The number of calls on the stack at the allocation, for workloads that differ in it.
    pub depth: Option<u32>,
    /// The modes in which it is measured; the first is the base of the ratios.
    pub modes: &'static [Mode],
    /// The path of its source.
    source: &'static str,
    /// The compiler's flags.
    flags: &'static [&'static str],
}

const ALL_MODES: &[Mode] = &[UNTRACED, BYSTANDER, FLOOR, SAMPLED, EXACT];

/// A bystander pays per call, whatever the depth, so that mode is omitted.
const OWN_MODES: &[Mode] = &[UNTRACED, FLOOR, SAMPLED, EXACT];

/// All workloads, in the order of the table.
pub const WORKLOADS: &[Workload] = &[
    Workload {
        name: "malloc/free pair",
        operation: "one `malloc(64)` and its `free`, in a loop that does nothing else, which is the worst case",
        depth: None,
        modes: ALL_MODES,
        source: "xtask/bench/pair.c",
        flags: &[],
    },
    Workload {
        name: "fork and wait",
        operation: "one `fork`, the child's `_exit`, and its `waitpid`; it includes the cost of inherited probes",
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

/// A pair of `malloc` and `free` at this depth. With the frames that start a thread, the deepest stays just
/// below the default limit of 128 frames.
const fn without_frame_pointers(name: &'static str, depth: u32) -> Workload {
    Workload {
        name,
        operation: "one `malloc(64)` and its `free`, at this depth, in code without frame pointers",
        depth: Some(depth),
        modes: OWN_MODES,
        source: "xtask/bench/depth.c",
        flags: &["-fomit-frame-pointer"],
    }
}

const fn with_frame_pointers(name: &'static str, depth: u32) -> Workload {
    Workload {
        name,
        operation: "one `malloc(64)` and its `free`, at this depth, in code that keeps frame pointers",
        depth: Some(depth),
        modes: OWN_MODES,
        source: "xtask/bench/depth.c",
        flags: &["-fno-omit-frame-pointer"],
    }
}

impl Workload {
    /// Prepares the program, and returns the command that runs it for some seconds on some threads.
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

    /// Whether it keeps frame pointers. Workloads that differ only in this and in depth can be compared.
    pub fn has_frame_pointers(&self) -> bool {
        self.flags.contains(&"-fno-omit-frame-pointer")
    }
}
