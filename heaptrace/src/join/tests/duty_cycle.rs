//! Tests of pauses, as the join sees them.

use heaptrace_common::wire::{end, map_flag};

use super::{PID, alloc, begin, end as ends, free, map, stack};
use crate::events::record::Event;
use crate::join::{EndedLimits, Follow, Joiner, Totals, Update};

/// Every ended process is merged at once.
const NONE: EndedLimits = EndedLimits {
    processes: 0,
    sites: 0,
};

/// A process with the blocks 1 to 3, which is paused at the time 50 on the clock of events.
fn paused() -> Joiner {
    let mut joiner = Joiner::new(Follow::All, NONE);
    joiner.event(begin(1));
    joiner.event(stack(1, 10, &[5]));
    for id in 1..=3 {
        joiner.event(Event::Alloc(alloc(1, 10, id, 100)));
    }
    joiner.pause(PID, 8000, 1000, 50);
    joiner
}

/// The counters of the run, after a check that its process and its site have the same.
fn totals(joiner: &mut Joiner, elapsed: u64) -> (Totals, Update) {
    let update = joiner.take_update(elapsed);
    let mut totals = update.totals;
    for other in [update.processes[0].1.totals, update.sites[0].1.totals] {
        // The peak of a site is its live bytes at the peak of the run.
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

/// Check that the blocks of a paused process are uncertain, that its later blocks are not, and that a free,
/// or an address that is handed out again, frees an uncertain block.
#[test]
fn blocks_of_a_paused_process_are_uncertain() {
    let mut joiner = paused();
    is(&totals(&mut joiner, 2000).0, 0, 3, 0);
    joiner.resume(PID, 5000);
    let mut new = alloc(1, 10, 4, 100);
    new.time = 60;
    // It has the address of block 1.
    new.replaced = 1;
    joiner.event(Event::Alloc(new));
    joiner.event(free(1, 2, 0));
    is(&totals(&mut joiner, 6000).0, 1, 1, 2);
    // After the next pause, the new block is uncertain, too, and both can be freed.
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
    // The peak counts what was certainly live.
    assert_eq!(sums.peak_live_bytes, 300);
}

/// Check that an allocation from before the pause is uncertain if its event arrives late.
#[test]
fn late_events_are_uncertain() {
    let mut joiner = paused();
    let mut late = alloc(1, 10, 4, 100);
    late.time = 49;
    joiner.event(Event::Alloc(late));
    is(&totals(&mut joiner, 2000).0, 0, 4, 0);
}

/// Check that the mappings of a paused process are uncertain, that unmapping them later changes nothing, and
/// that later mappings are joined, also at the same addresses, unless they are from before the pause.
#[test]
fn mappings_of_a_paused_process_are_uncertain() {
    let mut joiner = Joiner::new(Follow::All, NONE);
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

/// Check that a process that ends during its pause is merged with everything it had.
#[test]
fn paused_processes_are_merged() {
    let mut joiner = paused();
    joiner.event(ends(1, end::EXIT));
    joiner.close(1);
    let update = joiner.take_update(3000);
    is(&update.totals, 0, 3, 0);
    let merged = update.processes.iter().find(|(_, it)| it.merged == 1);
    is(&merged.unwrap().1.totals, 0, 3, 0);
}
