//! Tests of how processes end, and of limits of live memory.

use heaptrace_common::wire::ProcessEnd;

use super::{LIMITS, alloc, begin, end, process_end, stack};
use crate::config::{LimitedBy, LiveLimit};
use crate::events::record::Event;
use crate::join::{End, EndCause, EndedLimits, Exceeded, Follow, Joiner, MarkCause, Note};

/// An end at a time, with a status.
fn ended(process: u64, status: u32, out_of_memory: u32, time: u64) -> Event {
    Event::ProcessEnd(ProcessEnd {
        status,
        out_of_memory,
        time,
        ..process_end(process, end::EXIT)
    })
}

/// Check that the end of a process is recorded with its time since the run began, and that only sudden ends are told apart, once.
#[test]
fn ends_have_causes_and_times() {
    let mut joiner = Joiner::new(Follow::Family, LIMITS);
    joiner.set_began(100);
    for (serial, status, out_of_memory, cause, is_sudden) in [
        (1, 3 << 8, 0, EndCause::Exit(3), false),
        (2, 9, 1, EndCause::OutOfMemory, true),
        (
            3,
            11 | 0x80,
            0,
            EndCause::Signal {
                number: 11,
                has_core: true,
            },
            true,
        ),
    ] {
        joiner.event(begin(serial));
        joiner.event(stack(serial, 10, &[5]));
        joiner.event(Event::Alloc(alloc(serial, 10, 100 * serial, 64)));
        joiner.event(ended(serial, status, out_of_memory, 130));
        assert_eq!(joiner.take_sudden_end(), is_sudden, "{cause:?}");
        assert!(!joiner.take_sudden_end());
        let update = joiner.take_update(0);
        let (_, process) = update.processes.last().unwrap();
        assert_eq!(process.end, Some(End { cause, at_ns: 30 }));
        assert_eq!(
            (process.totals.left_bytes, process.totals.live_bytes),
            (64, 0)
        );
    }
}

/// Check that processes that crashed keep their records longer than others, and that those that don't are counted.
#[test]
fn crashed_processes_keep_their_records() {
    const CRASHED: u64 = 70;
    let limits = EndedLimits {
        processes: 2,
        sites: 1 << 20,
    };
    let mut joiner = Joiner::new(Follow::Family, limits);
    for serial in 1..=4 * CRASHED {
        joiner.event(begin(serial));
        joiner.event(stack(serial, 10, &[5]));
        joiner.event(Event::Alloc(alloc(serial, 10, serial, 64)));
        joiner.event(match serial <= CRASHED {
            true => ended(serial, 11, 0, serial),
            false => end(serial, end::EXIT),
        });
        joiner.close(1);
    }
    let update = joiner.take_update(0);
    let crashed = update.processes.iter().filter(|(_, process)| {
        let end = process.end;
        end.is_some_and(|end| end.cause.is_crash())
    });
    // The oldest ones went first.
    assert_eq!(crashed.count(), 64);
    let merged = update.quality.noted[Note::SuddenEndsMerged.name()];
    assert_eq!(merged, CRASHED - 64);
    let all = update.processes.iter().map(|(_, it)| it.totals.left_bytes);
    assert_eq!(all.sum::<u64>(), 4 * CRASHED * 64);
}

/// Check that a mark is made when live memory exceeds a limit, and that it is listed with its number.
#[test]
fn exceeded_limits_make_marks() {
    let mut joiner = Joiner::new(Follow::Family, LIMITS);
    joiner.event(begin(1));
    joiner.event(stack(1, 10, &[5]));
    joiner.event(Event::Alloc(alloc(1, 10, 100, 600)));
    assert!(!joiner.mark_exceeded(1, 1), "there is no limit");
    joiner.limit_live(LiveLimit {
        bytes: 1000,
        by: LimitedBy::Process,
    });
    assert!(!joiner.mark_exceeded(2, 2));
    joiner.mark(MarkCause::Timer, 3, 3);
    joiner.event(Event::Alloc(alloc(1, 10, 101, 600)));
    assert!(joiner.mark_exceeded(4, 4));
    assert!(!joiner.mark_exceeded(5, 5));
    let update = joiner.take_update(0);
    let marks: Vec<_> = update
        .marks
        .iter()
        .map(|it| (it.number, it.cause))
        .collect();
    assert_eq!(marks, [(1, MarkCause::Timer), (2, MarkCause::Exceeded)]);
    let [Exceeded { name, .. }] = update.exceeded.as_slice() else {
        panic!("{:?}", update.exceeded)
    };
    assert!(name.starts_with("name ("), "{name}");
    assert_eq!(
        update.exceeded,
        [Exceeded {
            mark: 2,
            at_ns: 4,
            limit_bytes: 1000,
            live_bytes: 1200,
            name: name.clone(),
            is_group: false,
        }]
    );
    assert!(joiner.take_update(0).exceeded.is_empty());
}
