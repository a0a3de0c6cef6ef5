//! Whole stories, event by event, as the kernel program tells them.

use heaptrace_common::wire::{
    Alloc, Free, MapChange, ProcessBegin, ProcessEnd, StackHead, Unmapped, end, flag, kind,
    map_flag,
};

use super::{Errors, Joiner, Kind, Process, Room, Totals, Update};
use crate::events::record::Event;

/// Room for all that a test tells.
const ROOM: Room = Room {
    ended: 100,
    sites: 1000,
};

/// No process of any machine has this id.
pub(crate) const PID: u32 = u32::MAX - 1;

pub(crate) fn begin(process: u64) -> Event {
    Event::ProcessBegin(ProcessBegin {
        kind: kind::PROCESS_BEGIN,
        pad: 0,
        tgid: PID,
        time: 1,
        process,
        start_time: 7,
        comm: *b"name\0rest of it\0",
        cgroup: 0,
    })
}

pub(crate) fn end(process: u64, reason: u32) -> Event {
    Event::ProcessEnd(ProcessEnd {
        kind: kind::PROCESS_END,
        pad: 0,
        reason,
        time: 9,
        process,
        failed: 2,
        untracked: 3,
        lost: 4,
    })
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
        pad2: 0,
        hash: [0; 2],
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
    Event::Free(Free {
        kind: kind::FREE,
        flags,
        tid: PID,
        time: 4,
        process,
        id,
    })
}

fn tell(events: impl IntoIterator<Item = Event>) -> (Joiner, Update) {
    let mut joiner = Joiner::new(false, ROOM);
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

/// Check that frees take away what allocations added, at the site, the process and the run alike.
#[test]
fn a_free_meets_its_allocation() {
    let (_, update) = tell([
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

/// Check that realloc is a free and an allocation, and that an address handed out again frees the
/// block that stood there.
#[test]
fn blocks_are_taken_over_and_replaced() {
    let (_, update) = tell([
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
        // What was proven freed by its address is swept later; it must not count again.
        free(1, 101, 0),
    ]);
    assert_eq!(update.totals.frees, 2);
    assert_eq!(update.totals.live_bytes, 16);
    assert_eq!(update.totals.peak_live_bytes, 128);
}

/// Check that the same frames under two ids are one site, and that the same frames of another
/// process are another.
#[test]
fn stacks_are_known_by_their_frames() {
    let (_, update) = tell([
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

/// Check that an ended process keeps what it had not freed, that the peak does not, and that its
/// blocks are named once, to be taken out of the kernel's map.
#[test]
fn an_ended_process_keeps_its_blocks() {
    let (mut joiner, update) = tell([
        begin(1),
        stack(1, 10, &[5]),
        Event::Alloc(alloc(1, 10, 100, 64)),
        end(1, end::EXEC),
        begin(2),
        stack(2, 11, &[5]),
        Event::Alloc(alloc(2, 11, 101, 40)),
    ]);
    assert_eq!(update.totals.live_bytes, 104);
    assert_eq!(update.totals.peak_live_bytes, 64);
    let (old, new) = (&update.processes[0].1, &update.processes[1].1);
    assert!(old.ended && !new.ended);
    assert_eq!((old.failed_allocations, old.untracked_frees), (2, 3));
    assert_eq!(old.totals.live_bytes, 64);
    let orphans: Vec<_> = joiner.take_orphans().collect();
    assert_eq!(orphans.len(), 1);
    assert_eq!((orphans[0].process, orphans[0].address), (1, 0x1000 + 100));
    assert_eq!(joiner.take_orphans().count(), 0);
}

/// Check that an update has only what changed since the one before.
#[test]
fn updates_are_differences() {
    let (mut joiner, _) = tell([
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
    // A new peak elsewhere changes what this site had at the peak.
    joiner.event(Event::Alloc(alloc(1, 10, 102, 1000)));
    let update = joiner.take_update(8);
    let at_peak: Vec<_> = update
        .sites
        .iter()
        .map(|(_, site)| site.totals.peak_live_bytes)
        .collect();
    assert_eq!(at_peak, [1064, 0]);
}

/// Check that an event that names what is not known is counted as lost, and does no harm.
#[test]
fn what_cannot_be_joined_is_counted() {
    let (_, update) = tell([
        Event::Alloc(alloc(1, 10, 100, 64)),
        stack(1, 10, &[5]),
        begin(1),
        Event::Alloc(alloc(1, 99, 100, 64)),
        free(7, 1, 0),
    ]);
    assert_eq!(update.quality.lost["unjoined"], 3);
    assert_eq!(update.totals, Totals::default());
}

pub(crate) fn map(flags: u16, asked: u64, new: (u64, u64), old: (u64, u64)) -> Event {
    Event::MapChange(MapChange {
        kind: kind::MAP_CHANGE,
        flags,
        tid: 1,
        entered: asked,
        time: asked + 1,
        process: 1,
        stack: 10,
        start: new.0,
        length: new.1,
        old_start: old.0,
        old_length: old.1,
    })
}

/// Check that mapped memory is an allocation that is freed by parts, at a site of its own beside the
/// blocks of the same stack, and that moving it is a free and an allocation.
#[test]
fn mappings_are_freed_by_parts() {
    const NEW: u16 = map_flag::RECORDED;
    const MOVED: u16 = map_flag::RECORDED | map_flag::MOVED;
    let (mut joiner, update) = tell([
        begin(1),
        stack(1, 10, &[5]),
        Event::Alloc(alloc(1, 10, 100, 64)),
        map(NEW, 10, (0x1000, 0x4000), (0, 0)),
        map(0, 20, (0, 0), (0x2000, 0x1000)),
        map(MOVED, 30, (0x9000, 0x2000), (0x3000, 0x1000)),
        // What is not known stays so.
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
        ..Totals::default()
    };
    assert_eq!(sites[1].totals, expected);
    // One that was lost on its way ends what was there before it, and nothing that came after.
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
    assert_eq!(joiner.take_update(8).totals.live_bytes, 64 + 0x2000);
}

/// Check that a mapping whose stack or process is not known is counted as lost.
#[test]
fn mappings_without_a_stack_are_counted() {
    let new = || map(map_flag::RECORDED, 10, (0x1000, 0x4000), (0, 0));
    let (_, update) = tell([new(), begin(1), new(), map(0, 20, (0, 0), (0x1000, 0x1000))]);
    assert_eq!(update.quality.lost["unjoined"], 2);
    assert_eq!(update.totals, Totals::default());
}
