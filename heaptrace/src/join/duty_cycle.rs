//! Processes that are probed in turns: what is still known of their blocks.
//!
//! Stage: join. While a process is left alone, its blocks may be freed unseen. So all that it had are uncertain
//! from then on: live as far as anybody saw, and told apart from what is live for certain. Their frees are
//! still joined where they are seen, and so is the proof that an address was handed out again. Knows nothing of who
//! decides whom to leave alone.

use super::estimate::Estimate;
use super::joiner::Joiner;
use super::processes::Entry;
use super::update::{DutyCycle, ProcessId, SiteId};

/// A process that is left alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paused {
    process: ProcessId,
    serial: u64,
    /// Up to when its time is counted, nanoseconds since the run began.
    counted: u64,
}

impl Joiner {
    /// Takes in that a process is not probed from now on, with what share of its processor time probes took.
    ///
    /// `time` is on the clock of events, and not before the last of its calls that was seen.
    pub fn pause(&mut self, pid: u32, overhead: u32, elapsed_ns: u64, time: u64) {
        let Some(process) = self.processes.running(pid) else {
            return;
        };
        if self.paused.iter().any(|it| it.process == process) {
            return;
        }
        let Some(entry) = self.processes.change(process) else {
            return;
        };
        let duty_cycle = entry.record.duty_cycle.get_or_insert(DutyCycle {
            from_ns: elapsed_ns,
            ..DutyCycle::default()
        });
        duty_cycle.overhead = duty_cycle.overhead.max(overhead);
        entry.turn += 1;
        entry.paused = time;
        let serial = entry.serial;
        let sites: Vec<SiteId> = entry.sites.values().copied().collect();
        for site in sites {
            let live = self.sites.get(site.0 as usize).map(|it| it.sums.live());
            if let Some(live) = live.filter(|live| *live != Estimate::default()) {
                self.count(process, site, |sums| sums.doubt(live));
                self.peak.shrink(site.0, live);
            }
        }
        // What of it is unmapped later would not be told from what is mapped at its place meanwhile.
        self.forget_regions(process);
        self.paused.push(Paused {
            process,
            serial,
            counted: elapsed_ns,
        });
    }

    /// Takes in that a process is probed again.
    pub fn resume(&mut self, pid: u32, elapsed_ns: u64) {
        self.count_paused_time(elapsed_ns);
        let process = self.processes.running(pid);
        self.paused.retain(|it| Some(it.process) != process);
    }

    /// Adds the time up to now to that of all who are left alone.
    pub(super) fn count_paused_time(&mut self, elapsed_ns: u64) {
        let mut paused = std::mem::take(&mut self.paused);
        paused.retain_mut(|it| {
            let since = elapsed_ns.saturating_sub(it.counted);
            it.counted = elapsed_ns;
            let is_same = |entry: &&mut Entry| entry.serial == it.serial;
            let Some(entry) = self.processes.change(it.process).filter(is_same) else {
                return false;
            };
            if let Some(duty_cycle) = &mut entry.record.duty_cycle {
                duty_cycle.unprobed_ns += since;
            }
            !entry.record.ended
        });
        self.paused = paused;
    }

    /// Takes in what a hit of a probe costs, and how much of a process's time may go into hits.
    pub fn set_overhead(&mut self, hit_ns: u64, most: u32) {
        self.quality.hit_ns = hit_ns;
        self.quality.max_overhead = most;
    }
}

#[cfg(test)]
mod tests {
    use heaptrace_common::wire::{end, map_flag};

    use super::*;
    use crate::events::record::Event;
    use crate::join::merge_ended::Room;
    use crate::join::tests::{PID, alloc, begin, end as ends, free, map, stack};
    use crate::join::{Totals, Update};

    /// Blocks 1 to 3 of a process that is then left alone, until the time 50 on the clock of events.
    fn paused() -> Joiner {
        let room = Room { ended: 0, sites: 0 };
        let mut joiner = Joiner::new(true, room);
        joiner.event(begin(1));
        joiner.event(stack(1, 10, &[5]));
        for id in 1..=3 {
            joiner.event(Event::Alloc(alloc(1, 10, id, 100)));
        }
        joiner.pause(PID, 8000, 1000, 50);
        joiner
    }

    /// All counters of the run, its process and its site, which must be the same.
    fn totals(joiner: &mut Joiner, elapsed: u64) -> (Totals, Update) {
        let update = joiner.take_update(elapsed);
        let mut totals = update.totals;
        for other in [update.processes[0].1.totals, update.sites[0].1.totals] {
            // The peak of a site is what it had at the run's.
            totals.peak_live_bytes = other.peak_live_bytes;
            assert_eq!(other, totals);
        }
        let all = totals.frees + totals.live_allocations + totals.uncertain_allocations;
        assert_eq!(totals.allocations, all);
        (update.totals, update)
    }

    fn is(totals: &Totals, live: u64, uncertain: u64, frees: u64) {
        let found = (
            totals.live_bytes,
            totals.uncertain_bytes,
            totals.freed_bytes,
        );
        assert_eq!(found, (100 * live, 100 * uncertain, 100 * frees));
    }

    /// Check that what a process had is uncertain once it was left alone, that what it allocates afterwards is not,
    /// and that frees and addresses that come again prove what they prove.
    #[test]
    fn what_it_had_is_uncertain() {
        let mut joiner = paused();
        is(&totals(&mut joiner, 2000).0, 0, 3, 0);
        joiner.resume(PID, 5000);
        let mut new = alloc(1, 10, 4, 100);
        new.time = 60;
        // It got the address of block 1.
        new.replaced = 1;
        joiner.event(Event::Alloc(new));
        joiner.event(free(1, 2, 0));
        is(&totals(&mut joiner, 6000).0, 1, 1, 2);
        // Again: the new one is uncertain, too, and both can be freed.
        joiner.pause(PID, 9000, 7000, 70);
        is(&totals(&mut joiner, 7000).0, 0, 2, 2);
        joiner.resume(PID, 8000);
        joiner.event(free(1, 4, 0));
        joiner.event(free(1, 3, 0));
        let (sums, update) = totals(&mut joiner, 9000);
        is(&sums, 0, 0, 4);
        let duty_cycle = update.processes[0].1.duty_cycle.unwrap();
        assert_eq!(
            (
                duty_cycle.from_ns,
                duty_cycle.unprobed_ns,
                duty_cycle.overhead
            ),
            (1000, 5000, 9000)
        );
        // The peak is what was live for certain.
        assert_eq!(sums.peak_live_bytes, 300);
    }

    /// Check that an allocation whose event comes in late, after its process was left alone, is uncertain.
    #[test]
    fn late_events_are_uncertain() {
        let mut joiner = paused();
        let mut late = alloc(1, 10, 4, 100);
        late.time = 49;
        joiner.event(Event::Alloc(late));
        is(&totals(&mut joiner, 2000).0, 0, 4, 0);
    }

    /// Check that what it had mapped is as uncertain, that unmapping it later proves nothing, and that what it maps
    /// afterwards, at the same place too, is joined as ever; but not where that comes in late.
    #[test]
    fn what_it_had_mapped_is_uncertain_too() {
        let mut joiner = Joiner::new(true, Room { ended: 0, sites: 0 });
        let of = |joiner: &mut Joiner| {
            let totals = joiner.take_update(1).totals;
            (
                totals.live_bytes,
                totals.uncertain_bytes,
                totals.freed_bytes,
            )
        };
        joiner.event(begin(1));
        joiner.event(stack(1, 10, &[5]));
        joiner.event(map(map_flag::RECORDED, 10, (0x1000, 0x4000), (0, 0)));
        joiner.pause(PID, 8000, 1000, 50);
        assert_eq!(of(&mut joiner), (0, 0x4000, 0));
        joiner.event(map(map_flag::RECORDED, 30, (0x9000, 0x1000), (0, 0)));
        assert_eq!(of(&mut joiner), (0, 0x5000, 0));
        joiner.resume(PID, 5000);
        joiner.event(map(0, 60, (0, 0), (0x1000, 0x1000)));
        joiner.event(map(map_flag::RECORDED, 70, (0x1000, 0x2000), (0, 0)));
        assert_eq!(of(&mut joiner), (0x2000, 0x5000, 0));
        joiner.event(map(0, 80, (0, 0), (0x1000, 0x4000)));
        assert_eq!(of(&mut joiner), (0, 0x5000, 0x2000));
    }

    /// Check that nothing of it is lost where the process ends while it is left alone, and is added up with others.
    #[test]
    fn it_may_end_meanwhile() {
        let mut joiner = paused();
        joiner.event(ends(1, end::EXIT));
        let update = joiner.take_update(3000);
        is(&update.totals, 0, 3, 0);
        let merged = update.processes.iter().find(|(_, it)| it.merged == 1);
        is(&merged.unwrap().1.totals, 0, 3, 0);
        joiner.resume(PID, 4000);
        joiner.take_update(5000);
        assert!(joiner.paused.is_empty());
    }
}
