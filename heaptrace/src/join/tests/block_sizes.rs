//! Tests of the smallest and the largest block of sites.

use std::collections::HashMap;

use heaptrace_common::wire::map_flag;

use super::{LIMITS, alloc, begin, end, free, map, stack};
use crate::events::record::Event;
use crate::join::{BlockSizes, EndedLimits, Follow, Joiner, SiteId};
use crate::random::numbers;

/// Check that the sizes of a site are those of all its blocks, also of freed ones and of later updates, and that a site of mappings has none.
#[test]
fn sizes_are_those_of_all_blocks() {
    let mut joiner = Joiner::new(Follow::Family, LIMITS);
    joiner.record_mappings();
    for event in [
        begin(1),
        stack(1, 10, &[5]),
        stack(1, 11, &[6]),
        Event::Alloc(alloc(1, 10, 100, 64)),
        map(map_flag::RECORDED, 3, (0x1000, 0x1000), (0, 0)),
    ] {
        joiner.event(event);
    }
    let mut sizes = |events: Vec<Event>| {
        events.into_iter().for_each(|event| joiner.event(event));
        let sites = joiner.take_update(5).sites;
        sites
            .into_iter()
            .map(|it| it.1.block_sizes)
            .collect::<Vec<_>>()
    };
    let of = |smallest, largest| Some(BlockSizes { smallest, largest });
    assert_eq!(sizes(Vec::new()), [of(64, 64), None]);
    let more = [0, 500].map(|size| Event::Alloc(alloc(1, 10, 200 + size, size)));
    let freed = [100, 200, 700].map(|id| free(1, id, 0));
    assert_eq!(
        sizes([more, [freed[0].clone(), freed[1].clone()]].concat()),
        [of(0, 500)]
    );
    assert_eq!(sizes(vec![freed[2].clone()]), [of(0, 500)]);
}

/// Check that the sizes of merged processes are those of all their blocks, and that a slot that is used again does not keep the old ones.
#[test]
fn merged_sizes_are_those_of_all() {
    let limits = EndedLimits {
        processes: 0,
        sites: 0,
    };
    let mut joiner = Joiner::new(Follow::Family, limits);
    let mut known = HashMap::<SiteId, _>::new();
    let mut random = numbers(9);
    let mut expected = HashMap::<u64, BlockSizes>::new();
    for process in 1..=40 {
        let frame = 5 + random(3);
        joiner.event(begin(process));
        joiner.event(stack(process, process, &[frame]));
        for id in 0..3 {
            let size = 10 * frame + random(10 * process);
            let event = alloc(process, process, process * 100 + id, size);
            joiner.event(Event::Alloc(event));
            let new = BlockSizes::of(size);
            let of = expected.entry(frame).or_insert(new);
            *of = of.and(new);
        }
        known.extend(joiner.take_update(process).sites);
        joiner.event(end(process, 1));
        joiner.close(1);
        known.extend(joiner.take_update(process).sites);
    }
    let mut found = HashMap::new();
    for site in known.values().filter(|it| it.totals.allocations > 0) {
        found.insert(site.stack, site.block_sizes.unwrap());
    }
    let sorted = |all: Vec<BlockSizes>| {
        let mut all: Vec<_> = all.iter().map(|it| (it.smallest, it.largest)).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(
        sorted(found.into_values().collect()),
        sorted(expected.into_values().collect())
    );
}
