//! Tests of the blocks that a run keeps one by one.

use heaptrace_common::wire::{Alloc, Free, end as reason};

use super::{LIMITS, PID, alloc, begin, end, free, stack};
use crate::events::record::Event;
use crate::join::{
    BlockChanges, BornBlock, EndedLimits, Follow, FreedBlock, HowFreed, Joiner, StackId,
};

fn joiner(has_all: bool, limits: EndedLimits) -> Joiner {
    let mut joiner = Joiner::new(Follow::Family, limits);
    joiner.log_blocks(1, has_all);
    joiner
}

fn changes(joiner: &mut Joiner, events: impl IntoIterator<Item = Event>) -> Vec<BlockChanges> {
    events.into_iter().for_each(|event| joiner.event(event));
    joiner.take_update(5).blocks
}

fn born(id: u64, size: u64) -> BornBlock {
    BornBlock {
        id,
        address: 0x1000 + id,
        size,
        stack: StackId(0),
        thread: PID,
        born_ns: 2,
        mean: 0,
        is_reallocated: false,
    }
}

fn freed(id: u64, how: HowFreed, freed_ns: u64, thread: u32) -> FreedBlock {
    FreedBlock {
        id,
        how,
        freed_ns,
        thread,
    }
}

fn freed_at(id: u64, time: u64) -> Event {
    let Event::Free(event) = free(1, id, 0) else {
        unreachable!()
    };
    Event::Free(Free {
        time,
        tid: 77,
        ..event
    })
}

/// Check that blocks that outlive an update are handed out with their allocation and later with their end, and that those that
/// don't are handed out only if all are wanted.
#[test]
fn lasting_blocks_are_handed_out() {
    for has_all in [false, true] {
        let mut joiner = joiner(has_all, LIMITS);
        let first = changes(
            &mut joiner,
            [
                begin(1),
                stack(1, 10, &[5]),
                Event::Alloc(alloc(1, 10, 100, 64)),
                Event::Alloc(alloc(1, 10, 101, 36)),
                freed_at(101, 4),
            ],
        );
        let brief = (born(101, 36), freed(101, HowFreed::Freed, 3, 77));
        let [first] = &first[..] else {
            panic!("{first:?}")
        };
        assert_eq!((first.owner.pid, first.owner.serial), (PID, 1));
        assert_eq!((first.owner.command.as_str(), first.at_ns), ("name", 5));
        assert_eq!(first.has_all, has_all);
        if has_all {
            assert_eq!(first.born, [born(100, 64), brief.0]);
            assert_eq!(first.freed, [brief.1]);
        } else {
            assert_eq!(first.born, [born(100, 64)]);
            assert_eq!(first.freed, []);
        }
        let second = changes(&mut joiner, [freed_at(100, 6)]);
        assert_eq!(second[0].born, []);
        assert_eq!(second[0].freed, [freed(100, HowFreed::Freed, 5, 77)]);
        assert_eq!(changes(&mut joiner, []), []);
        assert!(!joiner.needs_update());
    }
}

/// Check that the end of a block says whether it was freed, reallocated, or freed unseen, and that frees of blocks that were not
/// recorded are left out.
#[test]
fn ends_of_blocks_are_told_apart() {
    let mut joiner = joiner(true, LIMITS);
    let realloc = Event::Alloc(Alloc {
        freed: 100,
        mean: 4096,
        ..alloc(1, 10, 101, 128)
    });
    let replaced = Event::Alloc(Alloc {
        replaced: 101,
        ..alloc(1, 10, 102, 16)
    });
    let events = [
        begin(1),
        stack(1, 10, &[5]),
        Event::Alloc(alloc(1, 10, 100, 64)),
        realloc,
        replaced,
        freed_at(99, 4),
    ];
    let changes = changes(&mut joiner, events).remove(0);
    let made = BornBlock {
        mean: 4096,
        is_reallocated: true,
        ..born(101, 128)
    };
    assert_eq!(changes.born, [born(100, 64), made, born(102, 16)]);
    let ends = [
        freed(100, HowFreed::Reallocated, 2, PID),
        freed(101, HowFreed::Unseen, 0, 0),
    ];
    assert_eq!(changes.freed, ends);
}

/// Check that the end of a process is handed out, and that its blocks keep their stacks when its sites are merged with those of
/// others of its name.
#[test]
fn blocks_of_merged_processes_keep_their_stacks() {
    let none = EndedLimits {
        processes: 0,
        sites: 0,
    };
    let mut joiner = joiner(false, none);
    let mut all = Vec::new();
    for process in 1..4 {
        let (id, first) = (100 + process, 10 * process);
        let events = [
            begin(process),
            stack(process, first, &[4 + process]),
            stack(process, first + 1, &[5]),
            Event::Alloc(alloc(process, first, id, 64)),
            Event::Alloc(alloc(process, first + 1, id + 100, 64)),
            end(process, reason::EXIT),
        ];
        events.into_iter().for_each(|event| joiner.event(event));
        joiner.close(1);
    }
    let update = joiner.take_update(5);
    for (changes, process) in update.blocks.iter().zip(1..4) {
        assert_eq!((changes.owner.serial, changes.ended_ns), (process, Some(8)));
        let frames = changes.born.iter().map(|block| {
            let stack = &update.stacks[block.stack.0 as usize];
            let location = update.locations[stack.locations[0].0 as usize];
            (block.id, location.address)
        });
        all.extend(frames);
    }
    let address = |frame: u64| frame.saturating_sub(1);
    let expected: Vec<_> = (1..4)
        .flat_map(|process| {
            let other = (200 + process, address(5));
            [(100 + process, address(4 + process)), other]
        })
        .collect();
    assert_eq!(all, expected);
}

/// Check that all live blocks are handed out with an update that asks for them, also those of earlier updates, and that this takes nothing
/// from the changes.
#[test]
fn all_live_blocks_are_handed_out_when_asked() {
    let mut joiner = joiner(false, LIMITS);
    let events = [
        begin(1),
        stack(1, 10, &[5]),
        Event::Alloc(alloc(1, 10, 100, 64)),
        Event::Alloc(alloc(1, 10, 101, 36)),
    ];
    changes(&mut joiner, events);
    joiner.event(Event::Alloc(alloc(1, 10, 102, 1 << 33)));
    joiner.event(freed_at(100, 6));
    let update = joiner.take_update_with_blocks(9);
    assert_eq!(update.blocks[0].born, [born(102, 1 << 33)]);
    assert_eq!(update.blocks[0].freed.len(), 1);
    let whole = update.live_blocks.unwrap();
    assert_eq!(whole.len(), 1);
    assert_eq!(whole[0].owner, update.blocks[0].owner);
    assert!(whole[0].is_whole && whole[0].at_ns == 9 && whole[0].freed.is_empty());
    let mut ids: Vec<_> = whole[0].born.iter().map(|it| (it.id, it.size)).collect();
    ids.sort_unstable();
    assert_eq!(ids, [(101, 36), (102, 1 << 33)]);
    joiner.event(end(1, reason::EXIT));
    let update = joiner.take_update_with_blocks(10);
    // A file that begins then says so, though no block is live.
    let none = update.live_blocks.unwrap();
    assert_eq!((none.len(), none[0].owner.serial), (1, 0));
    assert!(none[0].is_whole && none[0].at_ns == 10 && none[0].born.is_empty());
}
