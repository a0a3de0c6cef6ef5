//! Tests of the join as a whole, event by event, and the events that other tests use.

mod block_log;
mod block_sizes;
mod duty_cycle;
mod ends;
mod generated_code;
mod generations;
mod own_peaks;
mod replaced_code;
mod temporary;
mod usage;

use heaptrace_common::wire::{
    Alloc, MapChange, ProcessBegin, ProcessEnd, StackHead, Unmapped, end, flag, kind, map_flag,
};

use super::{EndedLimits, Errors, Follow, Joiner, Kind, Loss, Process, Totals, Update};
use crate::events::record::{self, Event};

/// Limits that no test here exceeds.
const LIMITS: EndedLimits = EndedLimits {
    processes: 100,
    sites: 1000,
};

/// No process of any machine has this pid.
pub(crate) const PID: u32 = u32::MAX - 1;

pub(super) fn process_begin(process: u64) -> ProcessBegin {
    ProcessBegin {
        kind: kind::PROCESS_BEGIN,
        pad: 0,
        tgid: PID,
        time: 1,
        process,
        start_time: 7,
        comm: *b"name\0rest of it\0",
        cgroup: 0,
    }
}

pub(crate) fn begin(process: u64) -> Event {
    Event::ProcessBegin(process_begin(process))
}

pub(super) fn process_end(process: u64, reason: u32) -> ProcessEnd {
    ProcessEnd {
        kind: kind::PROCESS_END,
        pad: 0,
        reason,
        time: 9,
        process,
        failed: 2,
        untracked: 3,
        lost: 4,
        peak_pages: 5,
        status: 0,
        out_of_memory: 0,
    }
}

pub(crate) fn end(process: u64, reason: u32) -> Event {
    Event::ProcessEnd(process_end(process, reason))
}

pub(crate) fn stack(process: u64, id: u64, frames: &[u64]) -> Event {
    let head = StackHead {
        kind: kind::STACK,
        pad: 0,
        depth: frames.len() as u32,
        time: 2,
        process,
        id,
        walk: 0,
        raw: 0,
        hash: [0; 2],
        language: 0,
        language_frames: [0; 2],
    };
    Event::Stack(head, frames.to_vec())
}

pub(crate) fn alloc(process: u64, stack: u64, id: u64, size: u64) -> Alloc {
    Alloc {
        kind: kind::ALLOC,
        flags: 0,
        tid: PID,
        time: 3,
        process,
        id,
        stack,
        address: 0x1000 + id,
        size,
        freed: 0,
        replaced: 0,
        mean: 1,
    }
}

pub(crate) fn free(process: u64, id: u64, flags: u16) -> Event {
    Event::Free(record::tests::free(process, id, flags))
}

fn join(events: impl IntoIterator<Item = Event>) -> (Joiner, Update) {
    let mut joiner = Joiner::new(Follow::Family, LIMITS);
    for event in events {
        joiner.event(event);
    }
    let update = joiner.take_update(5);
    (joiner, update)
}

fn only_process(update: &Update) -> &Process {
    assert_eq!(update.processes.len(), 1);
    &update.processes[0].1
}

/// Check that a free takes its allocation off the live memory of the site, the process and the run.
#[test]
fn frees_take_off_their_allocations() {
    let (_, update) = join([
        begin(1),
        stack(1, 10, &[5]),
        Event::Alloc(alloc(1, 10, 100, 64)),
        Event::Alloc(alloc(1, 10, 101, 36)),
        free(1, 100, flag::TEMPORARY),
    ]);
    let expected = Totals {
        allocations: 2,
        allocated_bytes: 100,
        frees: 1,
        freed_bytes: 64,
        live_allocations: 1,
        live_bytes: 36,
        left_allocations: 0,
        left_bytes: 0,
        uncertain_allocations: 0,
        uncertain_bytes: 0,
        peak_live_bytes: 100,
        temporary_allocations: 1,
        errors: Errors::default(),
    };
    assert_eq!(update.totals, expected);
    assert_eq!(update.sites.len(), 1);
    assert_eq!(update.sites[0].1.totals, expected);
    let process = only_process(&update);
    assert_eq!(process.totals, expected);
    assert_eq!(process.command, "name");
}

/// Check that `realloc` is a free and an allocation, and that a block at an address that is handed out again
/// is freed.
#[test]
fn reallocated_and_replaced_blocks_are_freed() {
    let (_, update) = join([
        begin(1),
        stack(1, 10, &[5]),
        Event::Alloc(alloc(1, 10, 100, 64)),
        Event::Alloc(Alloc {
            freed: 100,
            ..alloc(1, 10, 101, 128)
        }),
        Event::Alloc(Alloc {
            replaced: 101,
            ..alloc(1, 10, 102, 16)
        }),
        // A block that was freed by its address is swept later. That must not count again.
        free(1, 101, 0),
    ]);
    assert_eq!(update.totals.frees, 2);
    assert_eq!(update.totals.live_bytes, 16);
    assert_eq!(update.totals.peak_live_bytes, 128);
}

/// Check that equal frames under two ids are one site, and that another process has a site of its own for them.
#[test]
fn equal_stacks_are_one_site() {
    let (_, update) = join([
        begin(1),
        begin(2),
        stack(1, 10, &[5, 6]),
        stack(1, 11, &[5, 6]),
        stack(2, 12, &[5, 6]),
        Event::Alloc(alloc(1, 10, 100, 1)),
        Event::Alloc(alloc(1, 11, 101, 1)),
        Event::Alloc(alloc(2, 12, 102, 1)),
    ]);
    assert_eq!(update.stacks.len(), 1);
    let counts: Vec<_> = update
        .sites
        .iter()
        .map(|(_, site)| site.totals.allocations)
        .collect();
    assert_eq!(counts, [2, 1]);
}

/// Check that what an ended process had not freed is left, not live, also if the event of an allocation comes
/// after its end, and that its blocks are handed out once, to be removed from the kernel's map.
#[test]
fn ended_processes_leave_their_live_bytes() {
    let (mut joiner, update) = join([
        begin(1),
        stack(1, 10, &[5]),
        Event::Alloc(alloc(1, 10, 100, 64)),
        Event::Alloc(alloc(1, 10, 103, 36)),
        end(1, end::EXEC),
        stack(1, 12, &[5]),
        Event::Alloc(alloc(1, 12, 104, 8)),
        begin(2),
        stack(2, 11, &[5]),
        Event::Alloc(alloc(2, 11, 101, 40)),
    ]);
    let totals = update.totals;
    assert_eq!((totals.live_bytes, totals.live_allocations), (40, 1));
    assert_eq!((totals.left_bytes, totals.left_allocations), (108, 3));
    assert_eq!(totals.peak_live_bytes, 100);
    let (old, new) = (&update.processes[0].1, &update.processes[1].1);
    assert!(old.ended && !new.ended);
    assert_eq!((old.failed_allocations, old.untracked_frees), (2, 3));
    assert_eq!((old.totals.live_bytes, old.totals.left_bytes), (0, 108));
    assert_eq!(old.memory.peak_resident, 5 * 4096);
    // A free that becomes known before the process is closed.
    joiner.event(free(1, 104, 0));
    let totals = joiner.take_update(6).totals;
    assert_eq!((totals.live_bytes, totals.left_bytes), (40, 100));
    assert_eq!(joiner.ending(), 1);
    assert_eq!(joiner.take_orphans().count(), 0);
    joiner.close(1);
    let mut orphans: Vec<_> = joiner.take_orphans().collect();
    orphans.sort_by_key(|it| it.address);
    assert_eq!(orphans.len(), 2);
    assert_eq!((orphans[0].process, orphans[0].address), (1, 0x1000 + 100));
    assert_eq!(joiner.take_orphans().count(), 0);
}

/// Check that a free or an unmapping that becomes known after the end of its process is joined, until the
/// process is closed, and that the peak of the run is not touched by that.
#[test]
fn late_frees_of_ended_processes_are_joined() {
    let (mut joiner, _) = join([
        begin(1),
        stack(1, 10, &[5]),
        Event::Alloc(alloc(1, 10, 100, 64)),
        Event::Alloc(alloc(1, 10, 101, 32)),
        Event::Alloc(alloc(1, 10, 102, 16)),
        map(map_flag::RECORDED, 4, (0x1000, 0x1000), (0, 0)),
        end(1, end::EXIT),
        end(1, end::EXIT),
        begin(2),
        stack(2, 11, &[5]),
        Event::Alloc(alloc(2, 11, 103, 4000)),
    ]);
    assert_eq!(joiner.ending(), 1);
    joiner.swept(1, 100);
    joiner.event(free(1, 101, 0));
    joiner.unmapped(&Unmapped {
        process: 1,
        start: 0x1000,
        length: 0x1000,
        before: 8,
    });
    let totals = joiner.take_update(6).totals;
    assert_eq!((totals.frees, totals.freed_bytes), (3, 0x1000 + 96));
    joiner.close(1);
    joiner.swept(1, 102);
    assert_eq!(joiner.take_update(7).totals, totals);
    let left: Vec<_> = joiner.take_orphans().map(|it| it.address).collect();
    assert_eq!(left, [0x1000 + 102]);
    // 112 bytes and the mapping were the most.
    assert_eq!(totals.peak_live_bytes, 0x1000 + 112);
    joiner.event(Event::Alloc(alloc(2, 11, 104, 300)));
    assert_eq!(joiner.take_update(8).totals.peak_live_bytes, 4300);
}

/// Check that an update has only the changes since the update before.
#[test]
fn updates_are_differences() {
    let (mut joiner, _) = join([
        begin(1),
        stack(1, 10, &[5]),
        stack(1, 11, &[6]),
        Event::Alloc(alloc(1, 10, 100, 64)),
        Event::Alloc(alloc(1, 11, 101, 64)),
    ]);
    assert!(joiner.take_update(6).sites.is_empty());
    joiner.event(free(1, 101, 0));
    let update = joiner.take_update(7);
    assert!(update.stacks.is_empty() && update.locations.is_empty());
    assert_eq!(update.sites.len(), 1);
    assert_eq!(update.sites[0].1.totals.live_bytes, 0);
    // A new peak of another site changes the bytes of this site at the peak.
    joiner.event(Event::Alloc(alloc(1, 10, 102, 1000)));
    let update = joiner.take_update(8);
    let at_peak: Vec<_> = update
        .sites
        .iter()
        .map(|(_, site)| site.totals.peak_live_bytes)
        .collect();
    assert_eq!(at_peak, [1064, 0]);
}

/// Check that events with unknown processes or stacks are counted as lost, and change nothing.
#[test]
fn unjoined_events_are_counted() {
    let (_, update) = join([
        Event::Alloc(alloc(1, 10, 100, 64)),
        stack(1, 10, &[5]),
        begin(1),
        Event::Alloc(alloc(1, 99, 100, 64)),
        free(7, 1, 0),
    ]);
    assert_eq!(update.quality.lost[Loss::Unjoined.name()], 3);
    assert_eq!(update.totals, Totals::default());
}

pub(crate) fn map(flags: u16, entered: u64, new: (u64, u64), old: (u64, u64)) -> Event {
    Event::MapChange(MapChange {
        kind: kind::MAP_CHANGE,
        flags,
        tid: 1,
        entered,
        time: entered + 1,
        process: 1,
        stack: 10,
        start: new.0,
        length: new.1,
        old_start: old.0,
        old_length: old.1,
    })
}

/// Check that a mapping is an allocation that can be freed in parts, that it has another site than blocks
/// with the same stack, and that a move is a free and an allocation.
#[test]
fn mappings_are_freed_by_parts() {
    const NEW: u16 = map_flag::RECORDED;
    const MOVED: u16 = map_flag::RECORDED | map_flag::MOVED;
    let (mut joiner, update) = join([
        begin(1),
        stack(1, 10, &[5]),
        Event::Alloc(alloc(1, 10, 100, 64)),
        map(NEW, 10, (0x1000, 0x4000), (0, 0)),
        map(0, 20, (0, 0), (0x2000, 0x1000)),
        map(MOVED, 30, (0x9000, 0x2000), (0x3000, 0x1000)),
        // These were mapped before the tracing began.
        map(MOVED, 40, (0x50000, 0x1000), (0x60000, 0x1000)),
        map(0, 50, (0, 0), (0x70000, 0x1000)),
    ]);
    let sites: Vec<_> = update.sites.iter().map(|(_, site)| site).collect();
    assert_eq!(sites.len(), 2);
    assert_eq!((sites[0].kind, sites[1].kind), (Kind::Heap, Kind::Mapped));
    assert_eq!(sites[0].totals.live_bytes, 64);
    let expected = Totals {
        allocations: 2,
        allocated_bytes: 0x6000,
        frees: 0,
        freed_bytes: 0x2000,
        live_allocations: 2,
        live_bytes: 0x4000,
        peak_live_bytes: 0x4000,
        // Mapped memory is exact, also in a sample.
        errors: Errors {
            mean_bytes: 1,
            ..Errors::default()
        },
        ..Totals::default()
    };
    assert_eq!(sites[1].totals, expected);
    // An unmapping whose event was lost frees what was mapped before it, and nothing later.
    let unmapped = |start, before| Unmapped {
        process: 1,
        start,
        length: 0x1000,
        before,
    };
    joiner.unmapped(&unmapped(0x1000, 5));
    joiner.unmapped(&unmapped(0x1000, 60));
    joiner.unmapped(&unmapped(0x4000, 60));
    let totals = joiner.take_update(7).totals;
    assert_eq!((totals.frees, totals.live_bytes), (1, 64 + 0x2000));
    joiner.event(end(1, end::EXIT));
    let totals = joiner.take_update(8).totals;
    assert_eq!((totals.live_bytes, totals.left_bytes), (0, 64 + 0x2000));
}

/// Check that a mapping with an unknown stack or process is counted as lost.
#[test]
fn mappings_without_a_stack_are_counted() {
    let new = || map(map_flag::RECORDED, 10, (0x1000, 0x4000), (0, 0));
    let (_, update) = join([new(), begin(1), new(), map(0, 20, (0, 0), (0x1000, 0x1000))]);
    assert_eq!(update.quality.lost[Loss::Unjoined.name()], 2);
    assert_eq!(update.totals, Totals::default());
}
