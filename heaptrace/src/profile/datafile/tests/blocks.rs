//! Tests of the blocks that a data file has one by one.

use super::super::read::read_with_blocks;
use super::*;
use crate::join::{
    BlockChanges, BlockOwner, BornBlock, FreedBlock, HowFreed, MappedPart, MemoryMap,
};
use crate::profile::{BlockList, WantedBlocks};

const SECOND: u64 = 1_000_000_000;

/// A block of each update, of which the one of the update before is freed.
fn changes(n: u32) -> BlockChanges {
    let id = u64::from(n) + 1;
    BlockChanges {
        owner: BlockOwner {
            serial: 5,
            pid: 42,
            start_time_ns: 7,
            command: "a".to_owned(),
        },
        is_whole: false,
        at_ns: u64::from(n) * SECOND,
        has_all: false,
        born: vec![BornBlock {
            id,
            address: 0x1000,
            size: 100 * id,
            stack: StackId(n),
            thread: 43,
            born_ns: id,
            mean: 0,
            is_reallocated: false,
        }],
        freed: vec![FreedBlock {
            id: id - 1,
            how: HowFreed::Freed,
            freed_ns: id,
            thread: 44,
        }],
        ended_ns: None,
        inspected: None,
        memory: n.is_multiple_of(2).then(|| MemoryMap {
            at_ns: u64::from(n),
            mapped: vec![MappedPart {
                start: 0x8000,
                end: 0x9000,
                stack: StackId(n),
            }],
            ..MemoryMap::default()
        }),
    }
}

fn written() -> (Vec<Profile>, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let mut writer = DataFileWriter::create(&path, &RunInfo::exact("--pid 42")).unwrap();
    let mut profile = Profile::new(RunInfo::exact("--pid 42"));
    let mut states = Vec::new();
    for n in 0..3 {
        let update = Update {
            blocks: vec![changes(n)],
            ..update(n)
        };
        writer.update(&update).unwrap();
        profile.fold(update).unwrap();
        states.push(profile.clone());
    }
    writer.symbols(&symbols()).unwrap();
    writer.finish(5 * SECOND).unwrap();
    (states, std::fs::read(&path).unwrap())
}

fn read_blocks(bytes: &[u8], until: u64) -> Recording {
    let options = ReadOptions {
        until,
        ..ReadOptions::default()
    };
    read_with_blocks(bytes, "it", options, Some(WantedBlocks::at(&[0x1000]))).unwrap()
}

fn ids(list: &BlockList) -> (Vec<u64>, Vec<u64>) {
    let process = &list.processes[0];
    let freed = process.freed.get(&0x1000).into_iter().flatten();
    (
        process.blocks.iter().map(|it| it.id).collect(),
        freed.map(|it| it.block.id).collect(),
    )
}

/// Check that blocks are read as they were at any time, and only if they are wanted: then the profile is the same.
#[test]
fn blocks_are_read_if_they_are_wanted() {
    let (states, bytes) = written();
    let without = read_from(bytes.as_slice(), "it", ReadOptions::default()).unwrap();
    assert_eq!(without.blocks, None);
    assert_eq!(without.warnings, Vec::<String>::new());
    assert_eq!(without.profile.sites, states[2].sites);
    let with = read_blocks(&bytes, u64::MAX);
    assert_eq!(with.profile, without.profile);
    let list = with.blocks.unwrap();
    assert_eq!((list.at_ns, list.has_all), (2 * SECOND, false));
    assert_eq!(list.processes[0].owner, changes(0).owner);
    assert_eq!(list.processes[0].blocks, changes(2).born);
    assert_eq!(ids(&list), (vec![3], vec![1, 2]));
    let earlier = read_blocks(&bytes, SECOND).blocks.unwrap();
    assert_eq!(ids(&earlier), (vec![2], vec![1]));
    assert_eq!(earlier.at_ns, SECOND);
}

/// Check that a copy with other names has the same blocks.
#[test]
fn copies_have_blocks() {
    let (_, bytes) = written();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    std::fs::write(&path, &bytes).unwrap();
    let mut copy = Vec::new();
    let file = open(&path).unwrap();
    file.copy_with_names(&symbols(), &mut copy).unwrap();
    let blocks = read_blocks(&copy, u64::MAX).blocks;
    assert_eq!(blocks, read_blocks(&bytes, u64::MAX).blocks);
}

/// Check that a file that is cut anywhere has the blocks of an earlier moment.
#[test]
fn cut_files_have_earlier_blocks() {
    let (_, bytes) = written();
    let mut seen = Vec::new();
    for len in 0..bytes.len() {
        let wanted = Some(WantedBlocks::at(&[0x1000]));
        let read = read_with_blocks(&bytes[..len], "it", ReadOptions::default(), wanted);
        if let Some(list) = read.ok().and_then(|it| it.blocks) {
            seen.push(ids(&list));
        }
    }
    seen.dedup();
    let expected = [(vec![1], vec![]), (vec![2], vec![1]), (vec![3], vec![1, 2])];
    assert_eq!(seen, expected);
}

/// Check that blocks are those of the last update that certainly has all of its blocks, also if no block changed in it.
#[test]
fn blocks_are_as_new_as_complete_updates() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let mut writer = DataFileWriter::create(&path, &RunInfo::exact("--pid 42")).unwrap();
    let mut known = Vec::new();
    for n in 0..4 {
        let update = Update {
            blocks: (n == 0).then(|| changes(0)).into_iter().collect(),
            ..update(n)
        };
        writer.update(&update).unwrap();
        known.push(read_blocks(&std::fs::read(&path).unwrap(), u64::MAX));
    }
    writer.finish(5 * SECOND).unwrap();
    known.push(read_blocks(&std::fs::read(&path).unwrap(), u64::MAX));
    let times = known.into_iter().map(|it| it.blocks.unwrap().at_ns);
    let expected = [0, 0, 1, 2, 3].map(|seconds| seconds * SECOND);
    assert_eq!(times.collect::<Vec<_>>(), expected);
}

/// Check that a block of a stack that the file does not have ends the reading, with its number.
#[test]
fn blocks_without_a_stack_are_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let mut writer = DataFileWriter::create(&path, &RunInfo::exact("--pid 42")).unwrap();
    let update = Update {
        blocks: vec![changes(1)],
        ..update(0)
    };
    writer.update(&update).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let recording = read_blocks(&bytes, u64::MAX);
    assert!(recording.is_damaged);
    assert!(
        recording.warnings[0].contains("stack entry 1"),
        "{:?}",
        recording.warnings
    );
}
