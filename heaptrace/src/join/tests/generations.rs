//! Generations: what was allocated since a mark, and how much of it lives on.

use super::{LIMITS, alloc, begin, free, stack};
use crate::events::record::Event;
use crate::join::{Follow, Generation, Joiner, MarkCause, Update};

/// An allocation at a time.
fn at(time: u64, id: u64, size: u64) -> Event {
    let mut event = alloc(1, 10, id, size);
    event.time = time;
    Event::Alloc(event)
}

fn joiner() -> Joiner {
    let mut joiner = Joiner::new(Follow::Family, LIMITS);
    joiner.event(begin(1));
    joiner.event(stack(1, 10, &[5]));
    joiner
}

fn mark(joiner: &mut Joiner, time: u64) {
    joiner.mark(MarkCause::Timer, time - 100, time);
}

/// The mark of a generation, its allocated and its live bytes, and what survived.
type Live = (u32, u64, u64, Vec<(u32, u64)>);

fn live(update: &Update) -> Vec<Live> {
    let all = update.generations.iter().map(|it| &it.1);
    let mut all: Vec<_> = all
        .map(|it: &Generation| {
            let totals = &it.site.totals;
            (
                it.mark,
                totals.allocated_bytes,
                totals.live_bytes,
                it.survived.clone(),
            )
        })
        .collect();
    all.sort();
    all
}

/// Check that a block counts for the mark before it by its own time, also if its event comes late, and that what survived each later
/// mark is known.
#[test]
fn blocks_belong_to_the_mark_before_them() {
    let mut joiner = joiner();
    joiner.event(at(3, 100, 1_000));
    let before = joiner.take_update(5);
    assert!(before.marks.is_empty() && before.generations.is_empty());
    mark(&mut joiner, 110);
    joiner.event(at(109, 101, 2_000));
    joiner.event(at(111, 102, 30));
    joiner.event(at(112, 103, 4));
    mark(&mut joiner, 120);
    joiner.event(free(1, 103, 0));
    joiner.event(at(120, 104, 500));
    joiner.event(at(119, 105, 7));
    mark(&mut joiner, 130);
    mark(&mut joiner, 140);
    joiner.event(free(1, 102, 0));
    joiner.event(free(1, 100, 0));
    joiner.event(free(1, 101, 0));
    let update = joiner.take_update(200);
    let marks: Vec<_> = update
        .marks
        .iter()
        .map(|it| (it.number, it.at_ns))
        .collect();
    assert_eq!(marks, [(1, 10), (2, 20), (3, 30), (4, 40)]);
    // What lived at the second mark lacks block 105, whose event came late.
    assert_eq!(
        live(&update),
        [(1, 41, 7, vec![(2, 34), (4, 37)]), (2, 500, 500, vec![])]
    );
    let first = &update.generations[0].1;
    assert_eq!(
        [2, 3, 4, 5].map(|mark| first.held_at(mark)),
        [34, 37, 37, 7]
    );
    // Nothing changed, so nothing is sent.
    let update = joiner.take_update(201);
    assert!(update.marks.is_empty() && update.generations.is_empty());
}
