//! The counts that a fixture reports about itself, and their comparison with heaptrace's.
//!
//! Part of the harness. `fixtures/c/truth.h` writes these lines.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::report::{Report, Totals};

/// The counts that one process of a fixture keeps of its own calls.
#[derive(Clone, Debug, Deserialize)]
pub struct Truth {
    /// The process's role in the fixture.
    pub role: String,
    /// The process id.
    pub pid: u32,
    /// Successful allocations.
    pub allocations: u64,
    /// The bytes requested by them.
    pub allocated_bytes: u64,
    /// Frees of these blocks.
    pub frees: u64,
    /// The bytes of these blocks.
    pub freed_bytes: u64,
    /// Blocks that were not freed.
    pub live_allocations: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// The most live bytes at a time. It is meaningful only if a single thread allocates.
    #[serde(default)]
    pub peak_live_bytes: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Blocks freed before their thread allocated again. Blocks freed by `realloc` don't count.
    #[serde(default)]
    pub temporary: u64,
    /// Frees of blocks from before tracing, which the tracer can't know.
    #[serde(default)]
    pub untracked: u64,
    /// The allocations and bytes of each `truth_` function.
    #[serde(default)]
    pub hooks: BTreeMap<String, (u64, u64)>,
}

impl Truth {
    /// Fails unless the totals are exactly these counts.
    pub fn matches(&self, totals: &Totals) -> Result<()> {
        self.matches_beside(totals, &Totals::default())
    }

    /// Fails unless the totals are exactly these counts and those of `beside` together.
    pub fn matches_beside(&self, totals: &Totals, beside: &Totals) -> Result<()> {
        let expected = [
            ("allocations", self.allocations + beside.allocations),
            (
                "allocated_bytes",
                self.allocated_bytes + beside.allocated_bytes,
            ),
            ("frees", self.frees + beside.frees),
            ("freed_bytes", self.freed_bytes + beside.freed_bytes),
            (
                "live_allocations",
                self.live_allocations + beside.unfreed_allocations(),
            ),
            ("live_bytes", self.live_bytes + beside.unfreed_bytes()),
        ];
        let seen = [
            totals.allocations,
            totals.allocated_bytes,
            totals.frees,
            totals.freed_bytes,
            totals.unfreed_allocations(),
            totals.unfreed_bytes(),
        ];
        let wrong: Vec<String> = expected
            .iter()
            .zip(seen)
            .filter(|((_, expected), seen)| expected != seen)
            .map(|((name, expected), seen)| format!("{name} is {seen} instead of {expected}"))
            .collect();
        ensure!(
            wrong.is_empty(),
            "{} (pid {}): {}",
            self.role,
            self.pid,
            wrong.join(", ")
        );
        Ok(())
    }

    /// Fails unless the totals differ from these counts by at most so many lost events. Nothing may be counted
    /// that didn't happen.
    pub fn matches_without(&self, totals: &Totals, lost: u64) -> Result<()> {
        if lost == 0 {
            return self.matches(totals);
        }
        for (name, seen, expected) in [
            ("allocations", totals.allocations, self.allocations),
            ("frees", totals.frees, self.frees),
        ] {
            ensure!(
                seen <= expected && expected - seen <= lost,
                "{} (pid {}): {name} is {seen} instead of {expected}, and {lost} events were lost",
                self.role,
                self.pid
            );
        }
        ensure!(
            totals.allocated_bytes <= self.allocated_bytes
                && totals.freed_bytes <= self.freed_bytes,
            "too many bytes: {totals:?} of {self:?}"
        );
        self.has_no_false_leak(totals)
    }

    /// Fails if more is live in the totals than in truth: then lost events made a leak.
    pub fn has_no_false_leak(&self, totals: &Totals) -> Result<()> {
        ensure!(
            totals.unfreed_allocations() <= self.live_allocations
                && totals.unfreed_bytes() <= self.live_bytes,
            "lost events made a leak: {totals:?} of {self:?}"
        );
        Ok(())
    }
}

/// Fails unless the program images of every process have in sum the counts that the process reported.
pub fn all_match(truths: &[Truth], report: &Report) -> Result<()> {
    let mut by_pid: BTreeMap<u32, Vec<&Truth>> = BTreeMap::new();
    for truth in truths {
        by_pid.entry(truth.pid).or_default().push(truth);
    }
    for (pid, mut images) in by_pid {
        let Some(last) = images.pop() else { continue };
        let mut beside = Totals::default();
        for image in images {
            beside += &Totals {
                allocations: image.allocations,
                allocated_bytes: image.allocated_bytes,
                frees: image.frees,
                freed_bytes: image.freed_bytes,
                live_allocations: image.live_allocations,
                live_bytes: image.live_bytes,
                ..Totals::default()
            };
        }
        last.matches_beside(&report.truth(Some(pid)), &beside)?;
    }
    Ok(())
}

/// The bounds that `endings.c` reports of its child.
#[derive(Clone, Debug, Deserialize)]
pub struct Bounds {
    /// The child's process id.
    pub pid: u32,
    /// Its status, as `wait` returns it.
    pub status: i32,
    /// Allocations that began.
    pub begun: u64,
    /// Allocations that ended.
    pub ended: u64,
    /// Frees that began.
    pub frees_begun: u64,
    /// Frees that ended.
    pub frees_ended: u64,
}

/// The part that every line of a fixture has.
#[derive(Deserialize)]
struct Line {
    role: String,
    pid: u32,
}

fn fixture_lines(stdout: &str) -> impl Iterator<Item = &str> {
    stdout.lines().filter(|line| line.starts_with("{\"role\""))
}

/// All counts in a fixture's output.
pub fn truths(stdout: &str) -> Result<Vec<Truth>> {
    let mut all = Vec::new();
    for text in fixture_lines(stdout) {
        let line: Line = serde_json::from_str(text).context("a fixture's line")?;
        if !["ready", "bounds", "lap"].contains(&line.role.as_str()) {
            all.push(serde_json::from_str(text).context("a fixture's counts")?);
        }
    }
    Ok(all)
}

/// The bounds in the output of `endings.c`.
pub fn bounds(stdout: &str) -> Result<Bounds> {
    let line = fixture_lines(stdout)
        .find(|line| line.contains("\"bounds\""))
        .context("the fixture printed no bounds")?;
    Ok(serde_json::from_str(line)?)
}

/// Allocations per second of the process's own processor time, from a line of `churn.c`.
pub fn lap(line: &str) -> Result<f64> {
    #[derive(Deserialize)]
    struct Lap {
        allocations: f64,
        cpu_ns: f64,
    }
    let lap: Lap = serde_json::from_str(line).context("not a lap of a fixture")?;
    Ok(lap.allocations / lap.cpu_ns * 1e9)
}

/// The process id in the line that a fixture prints when it is ready.
pub fn ready_pid(line: &str) -> Result<u32> {
    let line: Line = serde_json::from_str(line).context("not a line of a fixture")?;
    ensure!(
        line.role == "ready",
        "the fixture is not ready but says {}",
        line.role
    );
    Ok(line.pid)
}
