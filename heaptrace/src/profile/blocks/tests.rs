//! Tests of reading blocks.

use super::*;
use crate::join::HowFreed;

pub(in crate::profile) fn block(id: u64, address: u64, size: u64) -> BornBlock {
    BornBlock {
        id,
        address,
        size,
        stack: StackId(0),
        thread: 7,
        born_ns: id * 100,
        mean: 0,
        is_reallocated: false,
    }
}

fn end(id: u64) -> FreedBlock {
    FreedBlock {
        id,
        how: HowFreed::Freed,
        freed_ns: id * 100 + 50,
        thread: 7,
    }
}

fn changes(born: Vec<BornBlock>, freed: Vec<FreedBlock>) -> BlockChanges {
    BlockChanges {
        at_ns: 1,
        born,
        freed,
        ..BlockChanges::default()
    }
}

fn list(wanted: &[u64], all: impl IntoIterator<Item = BlockChanges>) -> ProcessBlocks {
    let mut reading = BlockReading::new(WantedBlocks::at(wanted));
    for changes in all {
        reading.apply(changes, 1).unwrap();
    }
    let (_, kept) = reading.size();
    let mut list = reading.finish();
    let process = list.processes.remove(0);
    let freed: usize = process.freed.values().map(Vec::len).sum();
    assert_eq!(kept, process.blocks.len() + freed);
    process
}

/// Check that an address is found in a block from its first byte to its last, that a block without bytes has its address, and that
/// neighbours are those of the address.
#[test]
fn addresses_are_found_in_blocks() {
    let blocks = vec![block(1, 0x100, 16), block(2, 0x180, 0), block(3, 0x140, 32)];
    let list = list(&[], [changes(blocks, vec![])]);
    let holder = |address| list.holding(address).map(|it| it.id);
    assert_eq!(
        [0xff, 0x100, 0x10f, 0x110, 0x15f, 0x160, 0x180, 0x181].map(holder),
        [None, Some(1), Some(1), None, Some(3), None, Some(2), None]
    );
    let beside = |address| {
        let (before, after) = list.neighbours(address);
        (before.map(|it| it.id), after.map(|it| it.id))
    };
    assert_eq!(beside(0x50), (None, Some(1)));
    assert_eq!(beside(0x105), (None, Some(3)));
    assert_eq!(beside(0x120), (Some(1), Some(3)));
    assert_eq!(beside(0x150), (Some(1), Some(2)));
    assert_eq!(beside(0x200), (Some(2), None));
}

/// Check that a file which begins without a block knows when it began, and has no process for that.
#[test]
fn files_can_begin_without_blocks() {
    let mut reading = BlockReading::new(WantedBlocks::default());
    let none = BlockChanges {
        is_whole: true,
        at_ns: 7,
        ..BlockChanges::default()
    };
    reading.add(none, false, 1).unwrap();
    let later = changes(vec![block(1, 0x100, 16)], vec![]);
    reading.add(later, false, 1).unwrap();
    let list = reading.finish();
    assert_eq!((list.began_ns, list.processes.len()), (Some(7), 1));
}

/// Check that a free takes away the block that it names, also if its address was used again before the free arrived, and that the
/// freed blocks at wanted addresses are kept, the last ones of many.
#[test]
fn freed_blocks_are_kept_at_wanted_addresses() {
    let reused = list(
        &[0x108],
        [
            changes(vec![block(1, 0x100, 16)], vec![]),
            changes(vec![block(2, 0x100, 32)], vec![]),
            changes(vec![], vec![end(1), end(99)]),
        ],
    );
    let ids = |blocks: &[PastBlock]| blocks.iter().map(|it| it.block.id).collect::<Vec<_>>();
    assert_eq!(reused.blocks, [block(2, 0x100, 32)]);
    assert_eq!(ids(&reused.freed[&0x108]), [1]);
    assert_eq!(reused.more_freed.get(&0x108), None);

    let many = (1..=100).map(|id| changes(vec![block(id, 0x100, 16)], vec![end(id)]));
    let many = list(&[0x10f, 0x110], many);
    assert_eq!(many.blocks, []);
    assert_eq!(ids(&many.freed[&0x10f]), (37..=100).collect::<Vec<_>>());
    assert_eq!(many.more_freed[&0x10f], 36);
    assert!(!many.freed.contains_key(&0x110));
}

/// Check that sums of many blocks of one stack need little memory beside the blocks. (A recording with many live blocks was refused.)
#[test]
fn sums_are_few() {
    use std::ops::Bound;

    use crate::profile::BlockNumber;

    let conditions = vec![BlockCondition {
        number: BlockNumber::Age,
        range: (Bound::Unbounded, Bound::Excluded(5)),
    }];
    let mut reading = BlockReading::new(WantedBlocks::classes(conditions));
    let many = (1..=1000).map(|id| block(id, id << 8, 16)).collect();
    reading.add(changes(many, vec![]), false, 1).unwrap();
    let (images, kept) = reading.size();
    assert!((images, kept) <= (1, 1000 + 2 * CLASS), "{kept}");
    let list = reading.finish();
    assert_eq!(list.processes[0].classes.len(), 1);
}

/// Check that a free takes away a block whose allocation is in a later part of the same changes. (Such blocks seemed live.)
#[test]
fn parts_are_applied_together() {
    let mut reading = BlockReading::new(WantedBlocks::default());
    let first = changes(vec![block(1, 0x100, 16)], vec![end(1), end(2)]);
    let second = changes(vec![block(2, 0x200, 16), block(3, 0x300, 16)], vec![]);
    reading.add(first, true, 1).unwrap();
    reading.add(second, false, 1).unwrap();
    let list = reading.finish();
    assert_eq!(list.processes[0].blocks, [block(3, 0x300, 16)]);
}

/// Check that what a later part has of the memory and of the classes is kept. (Classes were lost if blocks came before them.)
#[test]
fn parts_keep_what_they_have() {
    let mut reading = BlockReading::new(WantedBlocks::default().with_memory());
    let first = changes(vec![block(1, 0x100, 16)], vec![]);
    let inspected = Inspected {
        classes: vec!["Circle".to_owned()],
        blocks: vec![(1, 0)],
        ..Inspected::default()
    };
    let second = BlockChanges {
        inspected: Some(inspected),
        ..changes(vec![], vec![])
    };
    let third = BlockChanges {
        memory: Some(Default::default()),
        ..changes(vec![], vec![])
    };
    for (part, more) in [(first, true), (second, true), (third, false)] {
        reading.add(part, more, 1).unwrap();
    }
    let list = reading.finish();
    let process = &list.processes[0];
    assert_eq!(process.class_of(&process.blocks[0]), Some("Circle"));
    assert!(process.memory.is_some());
}

/// Check that a block of a stack that does not exist is refused.
#[test]
fn stacks_must_exist() {
    let mut reading = BlockReading::new(WantedBlocks::default());
    let born = changes(vec![block(1, 0x100, 16)], vec![]);
    assert_eq!(reading.apply(born, 0), Err(StackId(0)));
}
