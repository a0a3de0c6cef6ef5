//! The report in JSON as types, and the rules that every report must fulfil.
//!
//! Part of the harness. It knows the documented format alone.

mod quality;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

pub use quality::Quality;

/// A whole report.
#[derive(Clone, Debug, Deserialize)]
pub struct Report {
    /// Version of the format.
    pub schema: u32,
    /// Version of heaptrace.
    pub version: String,
    /// Whether allocations were sampled.
    pub mode: Mode,
    /// The length of the run.
    pub duration_ns: u64,
    /// Sums over everything.
    pub totals: Totals,
    /// The same by kind of memory.
    pub kinds: Kinds,
    /// The part of them that is memory mapped by programs themselves.
    #[serde(default)]
    pub mapped: Option<Totals>,
    /// Losses, and other limits of its accuracy.
    pub quality: Quality,
    /// Process images.
    pub processes: Vec<Process>,
    /// Allocation sites.
    pub sites: Vec<Site>,
    /// The number of calls by requested size.
    pub sizes: Vec<SizeClass>,
    /// The sampling rates, each with its time.
    #[serde(default)]
    pub rates: Vec<Rate>,
}

/// Sizes that are counted together.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct SizeClass {
    /// The smallest size.
    pub min: u64,
    /// The largest size.
    pub max: u64,
    /// The number of calls.
    pub calls: u64,
}

/// A sampling rate and the time in which it applied.
#[derive(Clone, Debug, Deserialize)]
pub struct Rate {
    /// The begin of that time.
    pub from_ns: u64,
    /// The end of that time.
    pub to_ns: u64,
    /// The process; none if the rate applies to all processes.
    pub pid: Option<u32>,
    /// The mean number of bytes between samples.
    pub mean_bytes: u64,
}

/// Whether allocations were sampled.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Mode {
    /// Every allocation was recorded.
    Exact,
    /// A sample was recorded.
    Sampled {
        /// The mean number of bytes between samples.
        mean_bytes: u64,
    },
}

/// Counters. They are unsigned so that reading a negative one fails.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the names are those of the format, explained in its documentation"
)]
pub struct Totals {
    pub allocations: u64,
    pub allocated_bytes: u64,
    pub frees: u64,
    pub freed_bytes: u64,
    pub live_allocations: u64,
    pub live_bytes: u64,
    pub left_at_exit_allocations: u64,
    pub left_at_exit_bytes: u64,
    pub peak_live_bytes: u64,
    pub temporary_allocations: u64,
    #[serde(default)]
    pub uncertain_allocations: u64,
    #[serde(default)]
    pub uncertain_bytes: u64,
    #[serde(default)]
    pub allocations_error: u64,
    #[serde(default)]
    pub allocated_bytes_error: u64,
    #[serde(default)]
    pub live_allocations_error: u64,
    #[serde(default)]
    pub live_bytes_error: u64,
    #[serde(default)]
    pub left_at_exit_allocations_error: u64,
    #[serde(default)]
    pub left_at_exit_bytes_error: u64,
}

/// The duty cycle of a process that was paused some of the time.
#[derive(Clone, Debug, Deserialize)]
#[expect(
    missing_docs,
    reason = "the names are those of the format, explained in its documentation"
)]
pub struct DutyCycle {
    pub from_ns: u64,
    pub unprobed_ns: u64,
    pub overhead_percent: f64,
    pub reached_percent: f64,
}

/// The memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Memory {
    pub resident: u64,
    pub peak_resident: u64,
    pub heap_live: u64,
    pub mapped_live: u64,
    pub peak_live: u64,
    pub resident_before: u64,
}

/// The totals by kind of memory.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Kinds {
    pub heap: Totals,
    pub mapped: Totals,
}

/// One process image.
#[derive(Clone, Debug, Deserialize)]
#[expect(
    missing_docs,
    reason = "the names are those of the format, explained in its documentation"
)]
pub struct Process {
    pub pid: u32,
    pub command: String,
    pub cgroup: String,
    pub ended: bool,
    pub lost: u64,
    pub merged: u64,
    pub totals: Totals,
    pub memory: Memory,
    pub allocators: Vec<Allocator>,
    pub probed_in_turns: Option<DutyCycle>,
    pub traced: Option<Traced>,
    pub end: Option<ProcessEnd>,
    pub killed_at: Option<KilledAt>,
}

/// The control group at whose limit a process was killed.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the names are those of the format, explained in its documentation"
)]
pub struct KilledAt {
    pub cgroup: String,
    pub limit_bytes: u64,
    pub oom_kills_before: u64,
    pub oom_kills: u64,
}

/// How a process ended.
#[derive(Clone, Debug, Deserialize)]
#[expect(
    missing_docs,
    reason = "the names are those of the format, explained in its documentation"
)]
pub struct ProcessEnd {
    pub kind: String,
    pub status: Option<u32>,
    pub signal: Option<u32>,
    pub at_ns: u64,
}

/// From when to when a process was traced, since the run began, and for how long it had run before.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Traced {
    pub from_ns: u64,
    pub to_ns: u64,
    pub age_ns: u64,
}

/// An allocator in a process.
#[derive(Clone, Debug, Deserialize)]
#[expect(
    missing_docs,
    reason = "the names are those of the format, explained in its documentation"
)]
pub struct Allocator {
    pub path: String,
    pub kind: String,
    pub hooks: Vec<String>,
}

/// One stack in one process.
#[derive(Clone, Debug, Deserialize)]
#[expect(
    missing_docs,
    reason = "the names are those of the format, explained in its documentation"
)]
pub struct Site {
    pub pid: u32,
    pub totals: Totals,
    pub stack: Vec<Frame>,
    pub stack_end: String,
    #[serde(default)]
    pub kind: Option<String>,
}

/// One frame.
#[derive(Clone, Debug, Deserialize)]
#[expect(
    missing_docs,
    reason = "the names are those of the format, explained in its documentation"
)]
pub struct Frame {
    pub function: Option<String>,
    pub module: Option<String>,
    pub file: Option<String>,
    pub line: Option<u32>,
    #[serde(default)]
    pub inlined: bool,
    pub language: String,
    pub address: String,
}

impl std::ops::AddAssign<&Totals> for Totals {
    fn add_assign(&mut self, other: &Self) {
        self.allocations += other.allocations;
        self.allocated_bytes += other.allocated_bytes;
        self.frees += other.frees;
        self.freed_bytes += other.freed_bytes;
        self.live_allocations += other.live_allocations;
        self.live_bytes += other.live_bytes;
        self.left_at_exit_allocations += other.left_at_exit_allocations;
        self.left_at_exit_bytes += other.left_at_exit_bytes;
        self.peak_live_bytes += other.peak_live_bytes;
        self.temporary_allocations += other.temporary_allocations;
        self.uncertain_allocations += other.uncertain_allocations;
        self.uncertain_bytes += other.uncertain_bytes;
        // The errors are independent of each other.
        let add = |error: &mut u64, other: u64| *error = (*error as f64).hypot(other as f64) as u64;
        add(&mut self.allocations_error, other.allocations_error);
        add(&mut self.allocated_bytes_error, other.allocated_bytes_error);
        add(
            &mut self.live_allocations_error,
            other.live_allocations_error,
        );
        add(&mut self.live_bytes_error, other.live_bytes_error);
        add(
            &mut self.left_at_exit_allocations_error,
            other.left_at_exit_allocations_error,
        );
        add(
            &mut self.left_at_exit_bytes_error,
            other.left_at_exit_bytes_error,
        );
    }
}

impl Totals {
    fn check(&self, whose: &str) -> Result<()> {
        ensure!(
            self.allocations
                == self.frees + self.unfreed_allocations() + self.uncertain_allocations
                && self.allocated_bytes
                    == self.freed_bytes + self.unfreed_bytes() + self.uncertain_bytes,
            "{whose}: allocations are not the sum of frees, unfreed and uncertain blocks: {self:?}"
        );
        ensure!(
            self.temporary_allocations <= self.frees,
            "{whose}: more temporary blocks than freed ones: {self:?}"
        );
        Ok(())
    }

    /// Blocks that are live, or were when their process ended.
    pub fn unfreed_allocations(&self) -> u64 {
        self.live_allocations + self.left_at_exit_allocations
    }

    /// The bytes of these blocks.
    pub fn unfreed_bytes(&self) -> u64 {
        self.live_bytes + self.left_at_exit_bytes
    }

    /// The counters of which the whole must be the sum of the parts.
    fn without_peak(mut self) -> Self {
        self.peak_live_bytes = 0;
        self
    }
}

impl Frame {
    /// Whether a word is in the function's name: `truth_realloc` is in `collections::truth_realloc::h0123`, and not in
    /// `truth_reallocarray`.
    pub fn is(&self, function: &str) -> bool {
        self.words().any(|word| word == function)
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        self.function
            .as_deref()
            .unwrap_or("")
            .split(|letter: char| !letter.is_alphanumeric() && letter != '_')
    }
}

impl Process {
    fn check(&self) -> Result<()> {
        let (pid, totals) = (self.pid, &self.totals);
        totals.check(&format!("process {pid}"))?;
        ensure!(
            totals.peak_live_bytes >= totals.live_bytes,
            "process {pid}: the peak is below what is live: {totals:?}"
        );
        let misplaced = if self.ended {
            totals.live_allocations
        } else {
            totals.left_at_exit_allocations
        };
        ensure!(
            misplaced == 0,
            "process {pid} (ended: {}) has {totals:?}",
            self.ended
        );
        let memory = &self.memory;
        ensure!(
            memory.peak_resident >= memory.resident
                && memory.heap_live + memory.mapped_live == totals.live_bytes
                && memory.peak_live == totals.peak_live_bytes,
            "process {pid}: {memory:?} of {totals:?}"
        );
        Ok(())
    }
}

impl Site {
    /// Whether the function is on its stack.
    pub fn has(&self, function: &str) -> bool {
        self.stack.iter().any(|frame| frame.is(function))
    }
}

fn sum<'a>(all: impl Iterator<Item = &'a Totals>) -> Totals {
    let mut sum = Totals::default();
    for totals in all {
        sum += totals;
    }
    sum
}

impl Report {
    /// Reads a report, and checks that it is consistent.
    pub fn parse(json: &str) -> Result<Self> {
        let report: Self = serde_json::from_str(json).context("the report is not as documented")?;
        report.check()?;
        Ok(report)
    }

    /// Checks the rules for every run, and those for exact runs.
    fn check(&self) -> Result<()> {
        ensure!(self.schema == 1, "schema {}", self.schema);
        self.totals.check("the run")?;
        for process in &self.processes {
            process.check()?;
        }
        for site in &self.sites {
            site.totals.check("a site")?;
        }
        if self.mode != Mode::Exact {
            return Ok(());
        }
        let processes = sum(self.processes.iter().map(|process| &process.totals));
        ensure!(
            processes.without_peak() == self.totals.without_peak(),
            "the processes' sum {processes:?} is not the run's {:?}",
            self.totals
        );
        let sites = sum(self.sites.iter().map(|site| &site.totals));
        ensure!(
            sites == self.totals,
            "the sites' sum {sites:?} is not the run's {:?}",
            self.totals
        );
        ensure!(
            self.totals.peak_live_bytes >= self.totals.live_bytes,
            "the peak is below what is live: {:?}",
            self.totals
        );
        let mut kinds = self.kinds.heap;
        kinds += &self.kinds.mapped;
        ensure!(
            kinds == self.totals,
            "the kinds' sum {kinds:?} is not the run's {:?}",
            self.totals
        );
        let quality = &self.quality;
        ensure!(
            quality.samples == self.totals.allocations,
            "{} samples, {} allocations in exact mode",
            quality.samples,
            self.totals.allocations
        );
        ensure!(
            quality.stacks_complete + quality.stacks_truncated + quality.stacks_broken
                == quality.samples,
            "not every sample has a stack of some quality: {quality:?}"
        );
        Ok(())
    }

    /// The sum of the sites with a `truth_` function on their stack, in one process or in all.
    pub fn truth(&self, pid: Option<u32>) -> Totals {
        sum(self
            .sites
            .iter()
            .filter(|site| pid.is_none_or(|pid| site.pid == pid))
            .filter(|site| {
                let mut words = site.stack.iter().flat_map(Frame::words);
                words.any(|word| word.starts_with("truth_"))
            })
            .map(|site| &site.totals))
    }

    /// The sum of the sites of a kind of memory. No kind stands for blocks.
    pub fn of_kind(&self, kind: Option<&str>) -> Totals {
        let sites = self.sites.iter();
        let sites = sites.filter(|site| site.kind.as_deref() == kind);
        sum(sites.map(|site| &site.totals))
    }

    /// The sum of the sites with a function on their stack.
    pub fn within(&self, function: &str) -> Totals {
        sum(self
            .sites
            .iter()
            .filter(|site| site.has(function))
            .map(|site| &site.totals))
    }

    /// The number of lost events, over all reasons.
    pub fn lost(&self) -> u64 {
        self.quality.lost.values().sum()
    }

    /// Fails if an event was lost, or if the report lists no reasons for losses.
    pub fn check_nothing_lost(&self) -> Result<()> {
        ensure!(
            !self.quality.lost.is_empty(),
            "the report names no reason for losses"
        );
        ensure!(self.lost() == 0, "lost: {:?}", self.quality.lost);
        Ok(())
    }

    /// The program images of a process, in the report's order.
    pub fn images(&self, pid: u32) -> Vec<&Process> {
        self.processes
            .iter()
            .filter(|process| process.pid == pid)
            .collect()
    }

    /// The program image of a process that has exactly one.
    pub fn process(&self, pid: u32) -> Result<&Process> {
        match self.images(pid).as_slice() {
            [process] => Ok(process),
            others => anyhow::bail!(
                "process {pid} is in the report {} times; it has {:?}",
                others.len(),
                self.processes
                    .iter()
                    .map(|process| (process.pid, &process.command))
                    .collect::<Vec<_>>()
            ),
        }
    }
}
