//! What a search of memory found, from the join to a profile.

use crate::events::record::Event;
use crate::join::tests::{alloc, begin, free, stack};
use crate::join::{EndedLimits, Follow, Joiner, ProcessId, Reachability};
use crate::profile::model::FoldError;
use crate::profile::{Profile, RunInfo};
use crate::reachability::{Found, Unreached};

/// Check that findings are summed by stack, without blocks that were freed meanwhile, that a later search replaces an earlier one, and
/// that processes that are left out, or that follow in the place of another one, have none.
#[test]
fn findings_are_summed_by_stack() {
    let limits = EndedLimits {
        processes: 5,
        sites: 1000,
    };
    let mut joiner = Joiner::new(Follow::Family, limits);
    let mut profile = Profile::new(RunInfo::exact("x"));
    joiner.event(begin(1));
    for (id, frame) in [(70, 7), (80, 8)] {
        joiner.event(stack(1, id, &[frame]));
    }
    for (stack, block, size) in [(70, 1, 100), (70, 2, 30), (80, 3, 5), (80, 4, 6)] {
        joiner.event(Event::Alloc(alloc(1, stack, block, size)));
    }
    let image = joiner.with_blocks()[0];
    let known = joiner.known_blocks(image).unwrap();
    // It was running before, as far as is known.
    assert!(!known.are_all);
    let mut live: Vec<_> = known.live.iter().map(|it| (it.id, it.size)).collect();
    live.sort_unstable();
    assert_eq!(live, [(1, 100), (2, 30), (3, 5), (4, 6)]);

    let unreached = |id, is_direct| Unreached { id, is_direct };
    let found = Found {
        unreached: vec![
            unreached(1, true),
            unreached(2, false),
            unreached(3, true),
            unreached(4, true),
        ],
        judged: (4, 141),
        too_young: 0,
        readings: 3,
    };
    let facts = |at_ns| Reachability {
        at_ns,
        ..Reachability::default()
    };
    joiner.set_reachability(image, facts(1), &found);
    joiner.event(free(1, 3, 0));
    joiner.set_reachability(image, facts(2), &found);
    profile.fold(joiner.take_update(3)).unwrap();
    let [result] = profile.reachability.as_slice() else {
        panic!("{:?}", profile.reachability);
    };
    assert_eq!((result.at_ns, result.freed_blocks), (2, 1));
    assert_eq!(result.later_readings, 3);
    assert_eq!((result.judged_blocks, result.judged_bytes), (4, 141));
    let sums = result.sites.iter().map(|it| {
        let [direct, indirect] = [it.direct, it.indirect];
        (direct.blocks, direct.bytes, indirect.blocks, indirect.bytes)
    });
    assert_eq!(sums.collect::<Vec<_>>(), [(1, 100, 1, 30), (1, 6, 0, 0)]);

    let mut without = profile.clone();
    without.sites.clear();
    without.keep_processes(&vec![false; profile.processes.len()]);
    assert!(without.reachability.is_empty());
    let mut update = profile.to_update();
    update.reachability[0].process = ProcessId(1);
    let mut other = Profile::new(RunInfo::exact("x"));
    let error = other.fold(update).unwrap_err();
    assert!(matches!(error, FoldError::Dangling { what: "search", .. }));
    let mut update = profile.to_update();
    update.reachability.clear();
    update.modules.clear();
    update.locations.clear();
    update.stacks.clear();
    update.processes[0].1.start_time_ns += 1;
    profile.fold(update).unwrap();
    assert!(profile.reachability.is_empty());
}
