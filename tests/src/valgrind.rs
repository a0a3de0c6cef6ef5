//! Counts a command's allocations with valgrind. Part of the harness: a second opinion on heaptrace's counts.
//!
//! Valgrind counts as heaptrace does: it counts requested bytes. A successful `realloc` is one allocation of the new
//! size and one free, `realloc(NULL, n)` an allocation, `realloc(p, 0)` a free. Calls by the dynamic loader count
//! from the moment when libc's allocator replaces the loader's own minimal one.
//! It differs in three points. It counts a `realloc` that fails as one that succeeded. Unless an option forbids it, it
//! makes libc and libstdc++ free their own blocks at exit. It doesn't know `pvalloc`.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::child::run;
use crate::rights::require_tool;

/// Valgrind's heap summary at the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapUsage {
    /// Allocations.
    pub allocations: u64,
    /// Frees.
    pub frees: u64,
    /// Bytes allocated.
    pub allocated_bytes: u64,
    /// Blocks in use at exit.
    pub live_allocations: u64,
    /// Their bytes.
    pub live_bytes: u64,
}

impl HeapUsage {
    /// Runs a command under valgrind.
    pub fn of<S: AsRef<OsStr>>(command: &[S]) -> Result<Self> {
        let mut valgrind = Command::new(require_tool("valgrind", "valgrind libc6-dbg")?);
        valgrind
            .args(["--run-libc-freeres=no", "--run-cxx-freeres=no", "--"])
            .args(command);
        let ended = run(&mut valgrind)?.success()?;
        Self::parse(&ended.stderr)
            .with_context(|| format!("valgrind printed no heap summary:\n{}", ended.stderr))
    }

    fn parse(stderr: &str) -> Option<Self> {
        let numbers = |label: &str| -> Option<Vec<u64>> {
            let line = stderr.lines().find(|line| line.contains(label))?;
            let (_, rest) = line.split_once(label)?;
            Some(
                rest.split_whitespace()
                    .filter_map(|word| word.replace(',', "").parse().ok())
                    .collect(),
            )
        };
        let [live_bytes, live_allocations] = *numbers("in use at exit:")? else {
            return None;
        };
        let [allocations, frees, allocated_bytes] = *numbers("total heap usage:")? else {
            return None;
        };
        Some(Self {
            allocations,
            frees,
            allocated_bytes,
            live_allocations,
            live_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::HeapUsage;

    /// Check that the numbers are read from valgrind's own words.
    #[test]
    fn reads_a_heap_summary() {
        let text = "==7== HEAP SUMMARY:\n\
                    ==7==     in use at exit: 3,264,582 bytes in 2,101 blocks\n\
                    ==7==   total heap usage: 63,611 allocs, 61,510 frees, 15,819,298 bytes allocated\n";
        let expected = HeapUsage {
            allocations: 63_611,
            frees: 61_510,
            allocated_bytes: 15_819_298,
            live_allocations: 2_101,
            live_bytes: 3_264_582,
        };
        assert_eq!(HeapUsage::parse(text), Some(expected));
        assert_eq!(HeapUsage::parse("no summary"), None);
    }
}
