//! Processes that are probed in turns: what is still known of their blocks.
//!
//! Stage: join. While a process is left alone, its blocks may be freed unseen. So all that it had are uncertain
//! from then on: live as far as anybody saw, and told apart from what is live for certain. Their frees are
//! still joined where they are seen, and so is the proof that an address was handed out again. Knows nothing of who
//! decides whom to leave alone.

use super::estimate::Estimate;
use super::joiner::Joiner;
use super::processes::Entry;
use super::update::{ProcessId, SiteId, Turns};

/// A process that is left alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alone {
    process: ProcessId,
    serial: u64,
    /// Up to when its time is counted, nanoseconds since the run began.
    counted: u64,
}

impl Joiner {
    /// Takes in that a process is not probed from now on, with what share of its processor time probes took.
    ///
    /// `time` is on the clock of events, and not before the last of its calls that was seen.
    pub fn left_alone(&mut self, pid: u32, overhead: u32, elapsed_ns: u64, time: u64) {
        let Some(process) = self.processes.running(pid) else {
            return;
        };
        if self.alone.iter().any(|it| it.process == process) {
            return;
        }
        let Some(entry) = self.processes.change(process) else {
            return;
        };
        let turns = entry.record.turns.get_or_insert(Turns {
            from_ns: elapsed_ns,
            ..Turns::default()
        });
        turns.overhead = turns.overhead.max(overhead);
        entry.turn += 1;
        entry.left_alone = time;
        let serial = entry.serial;
        let sites: Vec<SiteId> = entry.sites.values().copied().collect();
        for site in sites {
            let live = self.sites.get(site.0 as usize).map(|it| it.sums.live());
            if let Some(live) = live.filter(|live| *live != Estimate::default()) {
                self.count(process, site, |sums| sums.doubt(live));
                self.peak.shrink(site.0, live);
            }
        }
        self.alone.push(Alone {
            process,
            serial,
            counted: elapsed_ns,
        });
    }

    /// Takes in that a process is probed again.
    pub fn let_in(&mut self, pid: u32, elapsed_ns: u64) {
        self.count_time_alone(elapsed_ns);
        let process = self.processes.running(pid);
        self.alone.retain(|it| Some(it.process) != process);
    }

    /// Adds the time up to now to that of all who are left alone.
    pub(super) fn count_time_alone(&mut self, elapsed_ns: u64) {
        let mut alone = std::mem::take(&mut self.alone);
        alone.retain_mut(|it| {
            let since = elapsed_ns.saturating_sub(it.counted);
            it.counted = elapsed_ns;
            let is_same = |entry: &&mut Entry| entry.serial == it.serial;
            let Some(entry) = self.processes.change(it.process).filter(is_same) else {
                return false;
            };
            if let Some(turns) = &mut entry.record.turns {
                turns.unprobed_ns += since;
            }
            !entry.record.ended
        });
        self.alone = alone;
    }

    /// Takes in what a hit of a probe costs, and how much of a process's time may go into hits.
    pub fn set_overhead(&mut self, hit_ns: u64, most: u32) {
        self.quality.hit_ns = hit_ns;
        self.quality.max_overhead = most;
    }
}
