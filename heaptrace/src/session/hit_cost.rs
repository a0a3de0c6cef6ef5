//! The cost of a probe hit: its trap, and the kernel program that runs in the trap.
//!
//! Part of the session. The trap is measured once, at the start; the program's mean time is measured now and
//! then. Must not know what the cost is used for.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::kernel::program::Program;
use crate::probes::guardian::Connection;

/// The program's time is measured for one tick in so many. Not always: to measure it, the kernel reads its
/// clock twice at each run of a program.
const MEASURE_EVERY: u64 = 20;

/// Fewest program runs that make a measurement.
const ENOUGH_RUNS: u64 = 500;

/// Measures the cost of a probe hit.
pub(super) struct HitCost {
    trap: Duration,
    /// Has the right to make the kernel count program runs.
    guardian: Connection,
    /// The last few mean times of the program. The least of them counts: a program that is preempted seems to
    /// take longer.
    programs: VecDeque<Duration>,
    ticks: u64,
    /// While the kernel counts runs: the count and the time (ns) before.
    counting: Option<(OwnedFd, (u64, u64))>,
}

impl HitCost {
    pub(super) fn new(trap: Duration, guardian: Connection) -> Self {
        Self {
            trap,
            guardian,
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
        let counted = self.counting.take().map(|(_, before)| {
            let (count, ns) = program.runs();
            (count.saturating_sub(before.0), ns.saturating_sub(before.1))
        });
        self.ticks += 1;
        if self.ticks % MEASURE_EVERY == 1 {
            // Without the right to request the count, or with an old kernel, only the trap counts.
            let counting = self.guardian.count_runs().ok();
            self.counting = counting.map(|it| (it, program.runs()));
        }
        let Some((count, ns)) = counted.filter(|(count, _)| *count >= ENOUGH_RUNS) else {
            return false;
        };
        self.programs.push_back(Duration::from_nanos(ns / count));
        if self.programs.len() > KEPT {
            self.programs.pop_front();
        }
        true
    }
}
