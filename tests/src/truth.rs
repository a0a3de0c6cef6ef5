//! What a fixture says of itself, and how it is compared with what heaptrace saw.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::report::{Report, Totals};

/// The counts of one process of a fixture.
#[derive(Clone, Debug, Deserialize)]
pub struct Truth {
    /// Which of the fixture's processes it is.
    pub role: String,
    /// Its process id.
    pub pid: u32,
    /// Successful allocations.
    pub allocations: u64,
    /// Bytes asked for by them.
    pub allocated_bytes: u64,
    /// Frees of these blocks.
    pub frees: u64,
    /// The bytes of those.
    pub freed_bytes: u64,
    /// Blocks left.
    pub live_allocations: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// Most bytes at a time; only meaningful where one thread allocates.
    #[serde(default)]
    pub peak_live_bytes: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Blocks freed before their thread allocated again; a realloc is not counted as such.
    #[serde(default)]
    pub temporary: u64,
    /// Frees of blocks that the tracer can't know.
    #[serde(default)]
    pub untracked: u64,
    /// Per truth function its allocations and bytes.
    #[serde(default)]
    pub hooks: BTreeMap<String, (u64, u64)>,
}

impl Truth {
    /// Fails unless the totals are this truth, to the allocation and to the byte.
    pub fn matches(&self, totals: &Totals) -> Result<()> {
        self.matches_beside(totals, &Totals::default())
    }

    /// The same where something else, `beside`, was allocated as well.
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
                self.live_allocations + beside.live_allocations,
            ),
            ("live_bytes", self.live_bytes + beside.live_bytes),
        ];
        let seen = [
            totals.allocations,
            totals.allocated_bytes,
            totals.frees,
            totals.freed_bytes,
            totals.live_allocations,
            totals.live_bytes,
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

    /// Fails where more is live in the totals than in truth: events that were lost made a leak then.
    pub fn has_no_leak_made(&self, totals: &Totals) -> Result<()> {
        ensure!(
            totals.live_allocations <= self.live_allocations
                && totals.live_bytes <= self.live_bytes,
            "lost events made a leak: {totals:?} of {self:?}"
        );
        Ok(())
    }
}

/// Fails unless every process has the counts that it reported, in the sum of its program images.
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
    /// How it ended, as `wait` says.
    pub status: i32,
    /// Allocations that were begun.
    pub begun: u64,
    /// Allocations that ended.
    pub ended: u64,
    /// Frees that were begun.
    pub frees_begun: u64,
    /// Frees that ended.
    pub frees_ended: u64,
}

/// A line of a fixture that says something else than its counts.
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

/// Allocations in a second of its own processor time, by the line in which `churn.c` says so.
pub fn lap(line: &str) -> Result<f64> {
    #[derive(Deserialize)]
    struct Lap {
        allocations: f64,
        cpu_ns: f64,
    }
    let lap: Lap = serde_json::from_str(line).context("not a lap of a fixture")?;
    Ok(lap.allocations / lap.cpu_ns * 1e9)
}

/// The pid in the line by which a fixture says that it is ready.
pub fn ready_pid(line: &str) -> Result<u32> {
    let line: Line = serde_json::from_str(line).context("not a line of a fixture")?;
    ensure!(
        line.role == "ready",
        "the fixture is not ready but says {}",
        line.role
    );
    Ok(line.pid)
}
