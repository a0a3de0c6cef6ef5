//! Tests of a profile that is made of the updates of the join.

mod generations;
mod reachability;

use heaptrace_common::wire::end;

use super::{Profile, RunInfo};
use crate::events::record::Event;
use crate::join::tests::{alloc, begin, end, free, stack};
use crate::join::{EndedLimits, Follow, Joiner, Site, Totals};

/// Check that many ended processes are merged into few records, that no sum changes by that, and that running
/// processes keep their own records.
#[test]
fn ended_processes_are_merged() {
    let limits = EndedLimits {
        processes: 5,
        sites: 1000,
    };
    let mut joiner = Joiner::new(Follow::Family, limits);
    let mut profile = Profile::new(RunInfo::exact("--all"));
    joiner.event(begin(1000));
    joiner.event(stack(1000, 1_000_000, &[9]));
    joiner.event(Event::Alloc(alloc(1000, 1_000_000, 1_000_001, 500)));
    for process in 1..=100 {
        joiner.event(begin(process));
        for frame in 0..3 {
            let id = process * 100 + frame;
            // Two stacks that all processes have, and one that only this process has.
            let frames = [if frame < 2 { frame + 1 } else { id }];
            joiner.event(stack(process, id, &frames));
            joiner.event(Event::Alloc(alloc(process, id, id, 10 * process)));
        }
        joiner.event(free(process, process * 100, 0));
        joiner.event(end(process, end::EXIT));
        joiner.close(1);
        if process % 7 == 0 {
            profile.fold(joiner.take_update(process)).unwrap();
        }
    }
    profile.fold(joiner.take_update(1000)).unwrap();
    assert!(profile.processes.len() <= 8, "{}", profile.processes.len());
    let tables = profile.sites.len();
    profile.settle();
    assert!(profile.sites.len() <= tables);

    let expected = 500 + (1..=100).map(|process| 30 * process).sum::<u64>();
    assert_eq!(profile.totals.allocated_bytes, expected);
    assert_eq!(profile.totals.allocations, 301);
    let sum = |of: fn(&Totals) -> u64| {
        let sites = profile.sites.iter().map(|it| of(&it.totals)).sum::<u64>();
        let processes = profile
            .processes
            .iter()
            .map(|it| of(&it.totals))
            .sum::<u64>();
        (sites, processes)
    };
    assert_eq!(sum(|it| it.allocated_bytes), (expected, expected));
    assert_eq!(sum(|it| it.frees), (100, 100));
    assert_eq!(sum(|it| it.live_allocations), (1, 1));
    assert_eq!(sum(|it| it.left_allocations), (200, 200));
    assert_eq!(
        sum(|it| it.peak_live_bytes).0,
        profile.totals.peak_live_bytes
    );

    let many: Vec<_> = profile
        .processes
        .iter()
        .filter(|it| it.merged > 0)
        .collect();
    assert_eq!(many.len(), 1);
    assert_eq!((many[0].merged, many[0].pid, many[0].ended), (95, 0, true));
    assert_eq!((many[0].untracked_frees, many[0].lost), (3 * 95, 4 * 95));
    assert_eq!(profile.quality.untracked_frees, 300);
    // Each common stack is one site, and each other stack has its own.
    let sites = |process: usize| {
        let of = |site: &&Site| site.process.0 as usize == process;
        profile.sites.iter().filter(of).count()
    };
    let index = profile
        .processes
        .iter()
        .position(|it| it.merged > 0)
        .unwrap();
    assert_eq!(sites(index), 2 + 95);
    let running = profile.processes.iter().position(|it| !it.ended).unwrap();
    assert_eq!(profile.processes[running].totals.live_bytes, 500);
    assert_eq!(sites(running), 1);
}
