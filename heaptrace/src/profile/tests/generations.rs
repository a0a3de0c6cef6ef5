//! Generations in a profile that is made of the updates of the join.

use heaptrace_common::wire::end as why;

use crate::events::record::Event;
use crate::join::tests::{alloc, begin, end, free, stack};
use crate::join::{EndedLimits, Follow, Generation, Joiner, MarkCause};
use crate::profile::{Profile, RunInfo};

/// Limits that are not reached.
const LIMITS: EndedLimits = EndedLimits {
    processes: 100,
    sites: 1000,
};

/// An allocation at a time.
fn at(time: u64, id: u64, size: u64) -> Event {
    let mut event = alloc(1, 10, id, size);
    event.time = time;
    Event::Alloc(event)
}

fn mark(joiner: &mut Joiner, time: u64) {
    joiner.mark(MarkCause::Timer, time - 100, time);
}

/// Check that what a process leaves when it ends survives, and that generations of merged processes add up.
#[test]
fn ended_processes_keep_their_generations() {
    let none = EndedLimits {
        processes: 0,
        sites: 0,
    };
    let mut joiner = Joiner::new(Follow::Family, none);
    mark(&mut joiner, 101);
    let mut profile = Profile::new(RunInfo::exact("x"));
    for process in [1, 2] {
        joiner.event(begin(process));
        joiner.event(stack(process, 10, &[5]));
        let mut event = alloc(process, 10, process, 100 * process);
        event.time = 96 + 10 * process;
        joiner.event(Event::Alloc(event));
        profile.fold(joiner.take_update(process)).unwrap();
        mark(&mut joiner, 105 + 10 * process);
        joiner.event(end(process, why::EXIT));
        joiner.close(1);
        profile.fold(joiner.take_update(10 + process)).unwrap();
    }
    profile.settle();
    let sums: Vec<_> = profile
        .generations
        .iter()
        .map(|it| (it.mark, it.site.totals.left_bytes, it.held_at(3)))
        .collect();
    assert_eq!(sums, [(1, 100, 100), (2, 200, 200)]);
    assert_eq!(profile.processes[0].merged, 2);
}

/// Check that a run with many marks keeps some of them over its whole length, that no block is lost or counted twice by that, and that
/// what survived at the marks that are left is right.
#[test]
fn many_marks_are_thinned() {
    let mut joiner = Joiner::new(Follow::Family, LIMITS);
    joiner.event(begin(1));
    joiner.event(stack(1, 10, &[5]));
    let mut profile = Profile::new(RunInfo::exact("x"));
    let mut time = 1_000;
    for id in 1..=300_u64 {
        time += 10;
        mark(&mut joiner, time);
        joiner.event(at(time + 1, 1_000 + id, 16));
        joiner.event(at(time + 2, 5_000 + id, 1));
        if id > 20 {
            joiner.event(free(1, 5_000 + id - 20, 0));
        }
        profile.fold(joiner.take_update(time)).unwrap();
    }
    let numbers: Vec<_> = profile.marks.iter().map(|it| it.number).collect();
    assert!((32..=64).contains(&numbers.len()), "{numbers:?}");
    assert_eq!((numbers[0], numbers.last()), (1, Some(&300)));
    profile.settle();
    let sum = |of: fn(&Generation) -> u64| profile.generations.iter().map(of).sum::<u64>();
    assert_eq!(sum(|it| it.site.totals.allocated_bytes), 300 * 17);
    assert_eq!(sum(|it| it.site.totals.live_bytes), 300 * 16 + 20);
    for mark in numbers {
        let before = profile.generations.iter().filter(|it| it.mark < mark);
        let survived: u64 = before.map(|it| it.held_at(mark)).sum();
        let made = u64::from(mark) - 1;
        // Small blocks live for twenty marks.
        assert_eq!(survived, made * 16 + made.min(20), "{mark}");
    }
}
