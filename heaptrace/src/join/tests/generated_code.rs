//! Tests of names of generated code: those that come before their stacks, and those that come after.

use super::*;
use crate::jit::{Change, Code};
use crate::join::{Function, Language, Note, Site};

fn loaded(start: u64, name: &str, time: u64) -> Change {
    Change::Loaded(Code {
        start,
        end: start + 0x10,
        time,
        name: name.to_owned(),
        ..Code::default()
    })
}

fn alloc_at(time: u64, stack: u64, id: u64) -> Event {
    Event::Alloc(Alloc {
        time,
        ..alloc(1, stack, id, 64)
    })
}

/// The names of the innermost functions of sites, with their allocations and frees; an address if there is no name.
fn named(update: &Update, sites: impl Iterator<Item = Site>) -> Vec<(String, u64, u64)> {
    let name = |site: Site| {
        let stack = &update.stacks[site.stack.0 as usize];
        let location = update.locations[stack.locations[0].0 as usize];
        let name = match location.function {
            Some(id) => update.functions[id.0 as usize].name.clone(),
            None => format!("{:x}", location.address),
        };
        (name, site.totals.allocations, site.totals.frees)
    };
    sites.map(name).collect()
}

fn sites(update: &Update) -> Vec<(String, u64, u64)> {
    named(update, update.sites.iter().map(|(_, site)| *site))
}

fn expected(name: &str, allocations: u64, frees: u64) -> (String, u64, u64) {
    (name.to_owned(), allocations, frees)
}

fn joiner() -> Joiner {
    let mut joiner = Joiner::new(Follow::Family, LIMITS);
    joiner.add_process(PID);
    joiner.event(begin(1));
    joiner
}

fn unnamed(update: &Update) -> u64 {
    update.quality.noted[Note::JitFramesUnnamed.name()]
}

/// Check that a function has one site wherever its code is, and that the code that takes its place has another one, for later
/// allocations of the same stack.
#[test]
fn functions_are_told_apart_by_name() {
    let mut joiner = joiner();
    joiner.change_generated_code(1, loaded(0x2_0000, "f", 0), 1);
    joiner.change_generated_code(1, loaded(0x3_0000, "f", 0), 1);
    for (id, address) in [(10, 0x2_0008), (11, 0x3_0008)] {
        joiner.event(stack(1, id, &[address]));
        joiner.event(alloc_at(3, id, 100 + id));
    }
    joiner.change_generated_code(1, loaded(0x2_0000, "g", 0), 5);
    for (time, id) in [(4, 200), (6, 201), (7, 202)] {
        joiner.event(alloc_at(time, 10, id));
    }
    joiner.event(alloc_at(6, 11, 203));
    let update = joiner.take_update(5);
    assert_eq!(sites(&update), [expected("f", 4, 0), expected("g", 2, 0)]);
    let jit = |it: &Function| it.language == Language::Jit;
    assert!(update.functions.iter().all(jit));
    assert_eq!(unnamed(&update), 0);
}

/// Check that a stack whose name comes late keeps its site and its blocks, that later blocks of it are in the same site, and that
/// the first function that is written counts.
#[test]
fn names_can_come_late() {
    let mut joiner = joiner();
    joiner.event(stack(1, 10, &[0x2_0008, 0x2_0008]));
    joiner.event(stack(1, 11, &[0x9_0008]));
    for (stack, id) in [(10, 100), (10, 101), (11, 102)] {
        joiner.event(alloc_at(3, stack, id));
    }
    let before = joiner.take_update(5);
    assert_eq!(
        sites(&before),
        [expected("20007", 2, 0), expected("90007", 1, 0)]
    );
    assert_eq!(unnamed(&before), 2);
    joiner.change_generated_code(1, loaded(0x2_0000, "f", 0), 4);
    joiner.change_generated_code(1, loaded(0x2_0000, "g", 0), 5);
    joiner.name_late(1);
    joiner.event(free(1, 100, 0));
    joiner.event(alloc_at(4, 10, 103));
    let after = joiner.take_update(5);
    let whole = Update {
        stacks: [before.stacks, after.stacks].concat(),
        locations: [before.locations, after.locations].concat(),
        functions: after.functions,
        ..Update::default()
    };
    let found = named(&whole, after.sites.iter().map(|(_, site)| *site));
    assert_eq!(found, [expected("f", 3, 1)]);
    assert_eq!(after.quality.noted[Note::JitFramesUnnamed.name()], 1);
}

/// Check that a file with times gives a stack the function that was there when the stack was seen.
#[test]
fn times_decide_about_late_names() {
    let mut joiner = joiner();
    joiner.event(stack(1, 10, &[0x2_0008]));
    joiner.event(alloc_at(3, 10, 100));
    // The stack is of time 2.
    for (name, time) in [("older", 1), ("right", 2), ("newer", 3)] {
        joiner.change_generated_code(1, loaded(0x2_0000, name, time), 9);
    }
    joiner.name_late(1);
    let update = joiner.take_update(5);
    assert_eq!(sites(&update), [expected("right", 1, 0)]);
}
