//! Tests of which blocks are temporary.

use heaptrace_common::wire::{Alloc, Free, flag};

use super::{LIMITS, PID, alloc, begin, free, stack};
use crate::events::record::Event;
use crate::join::{Follow, Joiner};

fn allocated(id: u64, stack: u64, size: u64) -> Event {
    Event::Alloc(alloc(1, stack, id, size))
}

fn freed_by(tid: u32, id: u64) -> Event {
    let Event::Free(event) = free(1, id, 0) else {
        unreachable!()
    };
    Event::Free(Free { tid, ..event })
}

/// How many blocks are temporary if all calls are followed.
fn temporary(events: impl IntoIterator<Item = Event>) -> u64 {
    let mut joiner = Joiner::new(Follow::Family, LIMITS);
    joiner.follow_calls();
    let before = [begin(1), stack(1, 10, &[5]), stack(1, 20, &[6])];
    for event in before.into_iter().chain(events) {
        joiner.event(event);
    }
    joiner.take_update(5).totals.temporary_allocations
}

/// Check that a block is temporary if the last call of its thread allocated it, or one of its size and stack, and not after another free.
#[test]
fn a_block_is_temporary_after_a_like_one() {
    let two = |second: Event| [allocated(1, 10, 64), second];
    let free = |id| freed_by(PID, id);
    assert_eq!(temporary([allocated(1, 10, 64), free(1)]), 1);
    for (second, expected) in [
        (allocated(2, 10, 64), 1),
        (allocated(2, 10, 65), 0),
        (allocated(2, 20, 64), 0),
    ] {
        let events = two(second).into_iter().chain([free(1)]);
        assert_eq!(temporary(events), expected);
    }
    let events = two(allocated(2, 20, 8)).into_iter();
    assert_eq!(temporary(events.chain([free(1), free(2)])), 0);
}

/// Check that each thread has its own last call, and that the block which `realloc` replaces counts as one that is freed.
#[test]
fn threads_and_reallocations_are_followed() {
    let other = Event::Alloc(Alloc {
        tid: PID - 1,
        ..alloc(1, 20, 2, 8)
    });
    let events = [allocated(1, 10, 64), other, freed_by(PID, 1)];
    assert_eq!(temporary(events.clone()), 1);
    let by_other = [freed_by(PID - 1, 1)];
    assert_eq!(temporary(events.into_iter().take(2).chain(by_other)), 0);
    let grown = Event::Alloc(Alloc {
        freed: 1,
        ..alloc(1, 20, 2, 128)
    });
    let events = [allocated(1, 10, 64), grown, freed_by(PID, 2)];
    assert_eq!(temporary(events), 2);
}

/// Check that the flag of the kernel program counts if calls are not followed, and only then.
#[test]
fn the_flag_counts_in_a_sample() {
    let events = || {
        [
            begin(1),
            stack(1, 10, &[5]),
            allocated(1, 10, 64),
            allocated(2, 10, 65),
            free(1, 1, flag::TEMPORARY),
        ]
    };
    let mut joiner = Joiner::new(Follow::Family, LIMITS);
    events().into_iter().for_each(|it| joiner.event(it));
    assert_eq!(joiner.take_update(5).totals.temporary_allocations, 1);
    assert_eq!(temporary(events().into_iter().skip(2)), 0);
}
