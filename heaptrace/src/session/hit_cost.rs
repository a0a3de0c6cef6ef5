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

/// The program's time is measured for one tick in so many. Not always: to measure it, the kernel reads its
/// clock twice at each run of a program.
const MEASURE_EVERY: u64 = 20;

/// Fewest program runs that make a measurement.
const ENOUGH_RUNS: u64 = 500;

/// Who makes the kernel count the run time of programs.
pub(super) enum RunTime {
    /// The guardian, each time anew: it keeps the right to do so in a run with a limit of overhead.
    Again(Connection),
    /// This process, before it gives up its rights: until the first measurement. `None` afterwards, and with a kernel or
    /// rights that don't allow it.
    Once(Option<OwnedFd>),
}

impl RunTime {
    pub(super) fn new(config: &RunConfig, guardian: &Guardian) -> Result<Self> {
        Ok(match config.max_overhead {
            Some(_) => Self::Again(guardian.connection()?),
            None => Self::Once(enable_stats(Stats::RunTime).ok()),
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
    ticks: u64,
    /// While the kernel counts runs: the count and the time (ns) before.
    counting: Option<(OwnedFd, (u64, u64))>,
}

impl HitCost {
    pub(super) fn new(trap: Duration, run_time: RunTime) -> Self {
        Self {
            trap,
            run_time,
            programs: VecDeque::new(),
            ticks: 0,
            counting: None,
        }
    }

    /// The time that a probe hit takes, as far as measured.
    pub(super) fn time(&self) -> Duration {
        self.trap + self.programs.iter().min().copied().unwrap_or_default()
    }

    /// Begins or ends a measurement, if one is due; returns whether the time may have changed.
    pub(super) fn tick(&mut self, program: &Program) -> bool {
        const KEPT: usize = 5;
        let counted = self.counting.as_ref().map(|(_, before)| {
            let (count, ns) = program.runs();
            (count.saturating_sub(before.0), ns.saturating_sub(before.1))
        });
        let measured = counted.filter(|(count, _)| *count >= ENOUGH_RUNS);
        if measured.is_some() || matches!(self.run_time, RunTime::Again(_)) {
            self.counting = None;
        }
        self.ticks += 1;
        let next = match &mut self.run_time {
            // Without the right to request the count, or with an old kernel, only the trap counts.
            RunTime::Again(guardian) if self.ticks % MEASURE_EVERY == 1 => {
                guardian.count_runs().ok()
            }
            RunTime::Again(_) => None,
            RunTime::Once(counting) => counting.take(),
        };
        if let Some(counting) = next {
            self.counting = Some((counting, program.runs()));
        }
        let Some((count, ns)) = measured else {
            return false;
        };
        self.programs.push_back(Duration::from_nanos(ns / count));
        if self.programs.len() > KEPT {
            self.programs.pop_front();
        }
        true
    }
}
