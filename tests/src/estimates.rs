//! Comparison of a sample's estimates with the counts that a process keeps itself, and whether processes were moved to the
//! fast path.
//!
//! Part of the harness.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use crate::record::Recording;
use crate::report::{Report, Totals};
use crate::truth::Truth;

/// A block that stays live by mistake stands for a mean at least. Most tests have a mean of 64 KiB, and a few blocks may be
/// allocated by the C library itself.
const SLACK_BYTES: u64 = 256 << 10;

impl Report {
    /// How many processes were moved to the fast path, and how many could not be.
    pub fn moved(&self) -> (u64, u64) {
        let noted = |name: &str| self.quality.noted.get(name).copied().unwrap_or(0);
        (noted("processes_fast"), noted("processes_not_fast"))
    }
}

/// Fails unless an estimate is within six standard errors of the truth, and has a small error.
pub fn agrees(what: &str, truth: u64, estimate: u64, error: u64) -> Result<()> {
    println!("{what}: {estimate} ± {error}, in truth {truth}");
    ensure!(
        truth.abs_diff(estimate) <= 6 * error && error * 12 < truth,
        "{what}: {estimate} ± {error}, in truth {truth}"
    );
    Ok(())
}

/// Fails unless estimates agree with the counts that a process has of its own calls, also of those that were not freed.
pub fn agree(truth: &Truth, totals: &Totals) -> Result<()> {
    let bytes = (totals.allocated_bytes, totals.allocated_bytes_error);
    agrees("bytes", truth.allocated_bytes, bytes.0, bytes.1)?;
    let calls = (totals.allocations, totals.allocations_error);
    agrees("calls", truth.allocations, calls.0, calls.1)?;
    let (left, error) = (totals.unfreed_bytes(), totals.left_at_exit_bytes_error);
    ensure!(
        left.abs_diff(truth.live_bytes) <= 6 * error + SLACK_BYTES,
        "{left} bytes left, in truth {}",
        truth.live_bytes
    );
    Ok(())
}

impl Recording {
    /// The same for the process of this role, with all that it allocated.
    pub fn agrees_with(&self, role: &str) -> Result<()> {
        let truth = self.truth(role)?;
        // The last one with its id: a command may have run another program before.
        let images = self.report.images(truth.pid);
        agree(truth, &images.last().context("no such process")?.totals)
    }
}

/// The executable mappings of the fast path's code in a process.
pub fn code_mappings(pid: u32) -> Result<usize> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let is_code = |line: &&str| line.contains("heaptrace-fast") && line.contains("r-xp");
    Ok(maps.lines().filter(is_code).count())
}
