//! Tests of stacks whose code was replaced during the run: a library was unloaded, and another one loaded there.

use super::*;
use crate::events::sideband::{Change, Mapped, SideEvent};
use crate::join::{Follow, ModuleId, SiteId};
use crate::open::Expected;

/// A mapping of the addresses from 0x1000 on.
fn mapped(time: u64, path: &str) -> SideEvent {
    let mapped = Mapped {
        start: 0x1000,
        end: 0x2000,
        offset: 0,
        path: path.to_owned(),
        file: Expected {
            device: (0, 0),
            inode: 0,
        },
        is_shared: false,
    };
    SideEvent {
        time,
        pid: PID,
        change: Change::Mapped(mapped),
    }
}

fn alloc_at(time: u64, id: u64) -> Event {
    Event::Alloc(Alloc {
        time,
        ..alloc(1, 10, id, 64)
    })
}

/// Check that the blocks of one stack belong to the code that was mapped at the time of each, in whatever order
/// their events arrive, and that a mapping elsewhere, or of the same code, makes no new site.
#[test]
fn blocks_belong_to_the_code_at_their_time() {
    let mut joiner = Joiner::new(Follow::Family, LIMITS);
    joiner.add_process(PID);
    let maps = [(1, "/a"), (10, "/b"), (20, "//anon"), (30, "/a")];
    for (time, path) in maps {
        joiner.sideband(mapped(time, path));
    }
    let times = [3, 12, 4, 25, 35, 13, 26, 36];
    let allocations = times.iter().zip(100..).map(|(at, id)| alloc_at(*at, id));
    let free = free(1, 101, 0);
    for event in [begin(1), stack(1, 10, &[0x1010, 0x8000])]
        .into_iter()
        .chain(allocations)
        .chain([free])
    {
        joiner.event(event);
    }
    let update = joiner.take_update(5);
    let paths: Vec<_> = update.modules.iter().map(|it| it.path.as_str()).collect();
    assert_eq!(paths, ["/a", "/b"]);
    let found: Vec<_> = update
        .sites
        .iter()
        .map(|(id, site)| {
            let stack = &update.stacks[site.stack.0 as usize];
            let first = update.locations[stack.locations[0].0 as usize];
            let totals = site.totals;
            (*id, first.module, totals.allocations, totals.frees)
        })
        .collect();
    let expected = [
        (SiteId(0), Some(ModuleId(0)), 4, 0),
        (SiteId(1), Some(ModuleId(1)), 2, 1),
        (SiteId(2), None, 2, 0),
    ];
    assert_eq!(found, expected);
}
