//! The programs that are measured, one entry each.
//!
//! Part of bench. A workload must not know in which modes it is measured: it prints `ns_per_operation` of itself.

use std::ffi::OsString;

use anyhow::Result;

use crate::run;

/// A program to measure.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Its name in the table.
    pub name: &'static str,
    /// What one operation is.
    pub operation: &'static str,
    /// How many calls deep it allocates, where that is what differs; then on one thread only.
    pub depth: Option<u32>,
    /// Makes it ready, and gives the command that runs it for so many seconds on so many threads.
    pub command: fn(seconds: f64, threads: usize) -> Result<Vec<OsString>>,
}

/// All of them, in the order of the table.
pub const WORKLOADS: &[Workload] = &[
    Workload {
        name: "malloc/free pair",
        operation: "one `malloc(64)` and its `free`, in a loop that does nothing else: the worst case",
        depth: None,
        command: |seconds, threads| compiled("xtask/bench/pair.c", seconds, threads),
    },
    Workload {
        name: "fork and wait",
        operation: "one `fork`, the child's `_exit`, and the `waitpid` for it: what children inherit, they inherit here",
        depth: None,
        command: |seconds, threads| compiled("xtask/bench/fork.c", seconds, threads),
    },
    deep("a pair 1 call deep", 1, |seconds, threads| {
        at_depth(1, seconds, threads)
    }),
    deep("a pair 8 calls deep", 8, |seconds, threads| {
        at_depth(8, seconds, threads)
    }),
    deep("a pair 32 calls deep", 32, |seconds, threads| {
        at_depth(32, seconds, threads)
    }),
    deep("a pair 120 calls deep", 120, |seconds, threads| {
        at_depth(120, seconds, threads)
    }),
];

/// A pair of `malloc` and `free` this deep; with what starts a thread, the deepest is just below the 128
/// frames that are walked by default.
const fn deep(
    name: &'static str,
    depth: u32,
    command: fn(f64, usize) -> Result<Vec<OsString>>,
) -> Workload {
    Workload {
        name,
        operation: "one `malloc(64)` and its `free`, so many calls deep, in code without frame pointers",
        depth: Some(depth),
        command,
    }
}

fn at_depth(depth: u32, seconds: f64, threads: usize) -> Result<Vec<OsString>> {
    let mut command = compiled("xtask/bench/depth.c", seconds, threads)?;
    command.push(depth.to_string().into());
    Ok(command)
}

/// The command of a C program that takes a time and a number of threads.
fn compiled(source: &str, seconds: f64, threads: usize) -> Result<Vec<OsString>> {
    Ok(vec![
        run::compile_c(source, &["-O2"])?.into(),
        seconds.to_string().into(),
        threads.to_string().into(),
    ])
}
