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
    /// Makes it ready, and gives the command that runs it for so many seconds on so many threads.
    pub command: fn(seconds: f64, threads: usize) -> Result<Vec<OsString>>,
}

/// All of them, in the order of the table.
pub const WORKLOADS: &[Workload] = &[
    Workload {
        name: "malloc/free pair",
        operation: "one `malloc(64)` and its `free`, in a loop that does nothing else: the worst case",
        command: |seconds, threads| compiled("xtask/bench/pair.c", seconds, threads),
    },
    Workload {
        name: "fork and wait",
        operation: "one `fork`, the child's `_exit`, and the `waitpid` for it: what children inherit, they inherit here",
        command: |seconds, threads| compiled("xtask/bench/fork.c", seconds, threads),
    },
];

/// The command of a C program that takes a time and a number of threads.
fn compiled(source: &str, seconds: f64, threads: usize) -> Result<Vec<OsString>> {
    Ok(vec![
        run::compile_c(source, &["-O2"])?.into(),
        seconds.to_string().into(),
        threads.to_string().into(),
    ])
}
