//! The cost of a probe hit: its trap, and the kernel program that runs in the trap.
//!
//! Part of the session. The trap is measured once, at the start; the program's mean time is measured now and
//! then. Must not know what the cost is used for.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::Result;
use aya::sys::{Stats, enable_stats};

use crate::config::RunConfig;
use crate::kernel::program::Program;
use crate::probes::guardian::{Connection, Guardian};

/// A measurement of the program's time begins so long after the one before. Not at once: to measure it, the kernel reads
/// its clock twice at each run of a program.
const MEASURE_EVERY: Duration = Duration::from_secs(2);

/// The program runs that make a measurement. It lasts until there were as many: those that happen to be few between two
/// looks are not thrown away, or the first busy process seems to pay for its traps only.
const ENOUGH_RUNS: u64 = 500;

/// Who makes the kernel count the run time of programs.
pub(super) enum RunTime {
    /// The guardian, each time anew: it keeps the right to do so in a run with a limit of overhead, or with the fast path.
    Again(Connection),
    /// This process, before it gives up its rights: until the first measurement. `None` afterwards, and with a kernel or
    /// rights that don't allow it.
    Once(Option<OwnedFd>),
}

impl RunTime {
    pub(super) fn new(config: &RunConfig, guardian: &Guardian) -> Result<Self> {
        Ok(if config.follows_cost() {
            Self::Again(guardian.connection()?)
        } else {
            Self::Once(enable_stats(Stats::RunTime).ok())
        })
    }
}

/// Measures the cost of a probe hit.
pub(super) struct HitCost {
    trap: Duration,
    run_time: RunTime,
    /// The last few mean times of the program. The least of them counts: a program that is preempted seems to
    /// take longer.
    programs: VecDeque<Duration>,
    /// When the next measurement begins.
    next: Duration,
    /// While the kernel counts runs: the count and the time (ns) before.
    counting: Option<(OwnedFd, (u64, u64))>,
}

impl HitCost {
    pub(super) fn new(trap: Duration, run_time: RunTime) -> Self {
        Self {
            trap,
            run_time,
            programs: VecDeque::new(),
            next: Duration::ZERO,
            counting: None,
        }
    }

    /// The time that a probe hit takes, as far as measured.
    pub(super) fn time(&self) -> Duration {
        self.trap + self.programs.iter().min().copied().unwrap_or_default()
    }

    /// Begins or ends a measurement, if one is due; returns whether the time may have changed.
    pub(super) fn tick(&mut self, now: Duration, program: &Program) -> bool {
        const KEPT: usize = 5;
        let mean = self.end(program);
        if self.counting.is_none() && now >= self.next {
            self.next = now + MEASURE_EVERY;
            self.begin(program);
        }
        let Some(mean) = mean else {
            return false;
        };
        self.programs.push_back(mean);
        if self.programs.len() > KEPT {
            self.programs.pop_front();
        }
        true
    }

    /// Begins a measurement, if the kernel can count runs.
    fn begin(&mut self, program: &Program) {
        let counting = match &mut self.run_time {
            // Without the right to request the count, or with an old kernel, only the trap counts.
            RunTime::Again(guardian) => guardian.count_runs().ok(),
            RunTime::Once(counting) => counting.take(),
        };
        self.counting = counting.map(|counting| (counting, program.runs()));
    }

    /// Ends the measurement if it has enough runs; returns their mean time.
    fn end(&mut self, program: &Program) -> Option<Duration> {
        let (_, before) = self.counting.as_ref()?;
        let (count, ns) = program.runs();
        let count = count.saturating_sub(before.0);
        if count < ENOUGH_RUNS {
            return None;
        }
        let ns = ns.saturating_sub(before.1);
        self.counting = None;
        Some(Duration::from_nanos(ns / count))
    }
}
