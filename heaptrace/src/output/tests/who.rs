//! Tests of the owners of addresses, with hostile names and memory.

use super::sample::{EVIL, profile, symbols};
use super::{assert_printable, snapshot};
use crate::join::{BlockChanges, BlockOwner, BornBlock, FreedBlock, HowFreed, StackId};
use crate::output::{
    AskedAddress, CoreFacts, Place, ReportInput, ReportOptions, Who, find_owners, write_who,
    write_who_json,
};
use crate::profile::{BlockList, BlockReading, BlockType, Mode, Profile, WantedBlocks, Way};

const MS: u64 = 1_000_000;

fn born(id: u64, address: u64, size: u64) -> BornBlock {
    BornBlock {
        id,
        address,
        size,
        stack: StackId(if id.is_multiple_of(2) { 0 } else { 2 }),
        thread: 70,
        born_ns: id * 100 * MS,
        mean: 0,
        is_reallocated: id == 3,
    }
}

fn freed(id: u64, how: HowFreed) -> FreedBlock {
    FreedBlock {
        id,
        how,
        freed_ns: id * 100 * MS + 1_500,
        thread: 71,
    }
}

/// The blocks of a process that has ended, and of one that has not.
fn blocks(has_all: bool) -> BlockList {
    let owner = |serial: u64, command: &str| BlockOwner {
        serial,
        pid: serial as u32 * 10,
        start_time_ns: 5_000,
        command: command.to_owned(),
    };
    let ended = BlockChanges {
        owner: owner(1, EVIL),
        memory: None,
        is_whole: false,
        inspected: None,
        at_ns: 2_000 * MS,
        has_all,
        born: vec![
            born(1, 0x1000, 48),
            born(2, 0x1000, 40),
            born(3, 0x1010, 16),
            born(4, 0x1000, 48),
            born(5, 0xf80, 100),
            born(6, 0x1030, 1),
        ],
        freed: vec![
            freed(1, HowFreed::Freed),
            freed(2, HowFreed::Reallocated),
            freed(3, HowFreed::Unseen),
        ],
        ended_ns: Some(1_000 * MS),
    };
    let running = BlockChanges {
        owner: owner(2, "running"),
        memory: None,
        inspected: None,
        born: vec![born(7, 0x1000, 2_000)],
        freed: vec![freed(7, HowFreed::Freed)],
        ended_ns: None,
        ..ended.clone()
    };
    let mut reading = BlockReading::new(WantedBlocks::at(&[0x1018, 0x1031, 0x10]));
    for changes in [ended, running] {
        reading.add(changes, false, 3).unwrap();
    }
    reading.finish()
}

fn asked() -> Vec<AskedAddress> {
    let asked = |address, name: &str, place, memory: &[u8]| AskedAddress {
        address,
        name: name.to_owned(),
        place,
        memory: memory.to_vec(),
    };
    vec![
        asked(
            0x1018,
            "rdi, rax",
            Place::Mapped(EVIL.to_owned()),
            b"\x1b[2J \x9b guest\0\0\0and more",
        ),
        asked(0x1031, "", Place::Unknown, &[]),
        asked(0x10, "accessed", Place::Unmapped, &[]),
    ]
}

fn shown(profile: &Profile, has_all: bool, pid: Option<u32>, details: bool) -> String {
    let (mut symbols, blocks, asked) = (symbols(), blocks(has_all), asked());
    symbols.types.types.push(BlockType {
        name: format!("std::vector<{EVIL}>"),
        element: EVIL.to_owned(),
        element_bytes: 8,
        header_bytes: 0,
        is_capacity: true,
        way: Way::Frames,
    });
    symbols.types.of_stacks.insert(StackId(0), 0);
    let input = ReportInput::new(profile, &symbols);
    let core = pid.map(|pid| CoreFacts {
        pid,
        command: EVIL.to_owned(),
        thread: 70,
        signal: 11,
        fault: Some(0x10),
        others: vec!["rsi".to_owned(), "rsp".to_owned()],
    });
    let who = Who {
        blocks: &blocks,
        core,
        owned: find_owners(&blocks, &asked, pid),
    };
    let options = ReportOptions {
        details,
        width: Some(80),
        ..ReportOptions::default()
    };
    let mut out = Vec::new();
    write_who(&input, &who, &options, &mut out).unwrap();
    let mut json = Vec::new();
    write_who_json(&input, &who, &mut json).unwrap();
    let json = String::from_utf8(json).unwrap();
    assert_printable(&json);
    let text = String::from_utf8(out).unwrap();
    assert_printable(&text);
    format!("{text}{json}")
}

/// Check the whole answer about addresses of a core file, as text and JSON: the block, those before it, neighbours and memory.
#[test]
fn owners_in_a_core_file() {
    snapshot("who.txt", &shown(&profile(), true, Some(10), false));
}

/// Check that an answer says where to look on if no register points to a freed block, and only then.
#[test]
fn a_core_file_without_a_freed_block_gets_a_hint() {
    let hint = "No register points to a freed block.";
    let (profile, symbols, blocks) = (profile(), symbols(), blocks(true));
    let input = ReportInput::new(&profile, &symbols);
    let answer = |asked: &[AskedAddress], others: &[&str]| {
        let who = Who {
            blocks: &blocks,
            core: Some(CoreFacts {
                pid: 10,
                command: String::new(),
                thread: 70,
                signal: 11,
                fault: None,
                others: others.iter().map(|&name| name.to_owned()).collect(),
            }),
            owned: find_owners(&blocks, asked, Some(10)),
        };
        let mut out = Vec::new();
        write_who(&input, &who, &ReportOptions::default(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let asked = asked();
    assert!(!answer(&asked, &["rsp"]).contains(hint));
    assert!(answer(&asked[1..2], &["rsp"]).contains(hint));
    assert!(answer(&[], &["rsp"]).contains(hint));
    // No registers were looked at.
    assert!(!answer(&asked[1..2], &[]).contains(hint));
}

/// Check that all processes are asked if none is chosen, and only those answer that had a block there, and that an answer says what it
/// can't know: of a sample, and without events.
#[test]
fn owners_in_all_processes() {
    let mut profile = profile();
    let exact = shown(&profile, true, None, false);
    assert!(
        exact.contains("24 bytes into a freed block of 2,000 bytes of running (20)"),
        "{exact}"
    );
    assert!(
        exact.contains("24 bytes into a block left at exit of 48 bytes"),
        "{exact}"
    );
    assert!(
        exact.contains("in no recorded block of 2 processes"),
        "{exact}"
    );
    assert!(exact.contains("memory from before tracing"), "{exact}");
    assert!(!exact.contains("--events"), "{exact}");

    profile.info.mode = Mode::Sampled { mean_bytes: 4096 };
    let sampled = shown(&profile, false, None, false);
    let words = sampled.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("Only a part of all blocks was recorded (sampled, one in 4.0 KiB)"),
        "{sampled}"
    );
    assert!(
        words.contains("`heaptrace record --events` keeps them"),
        "{sampled}"
    );
}

/// Check that what is mapped at an address is said also if several programs of the process ran there and none had a block, and that it is
/// not said of an earlier program that had one.
#[test]
fn mappings_are_those_of_the_last_program() {
    let program = |serial: u64, address| BlockChanges {
        owner: BlockOwner {
            serial,
            pid: 10,
            start_time_ns: 5_000,
            command: format!("program {serial}"),
        },
        born: vec![born(serial, address, 100)],
        ..BlockChanges::default()
    };
    let mut reading = BlockReading::new(WantedBlocks::default());
    for changes in [program(1, 0x1000), program(2, 0x5000)] {
        reading.add(changes, false, 3).unwrap();
    }
    let list = reading.finish();
    let text = |address| {
        let place = Place::Mapped("/lib/x.so".to_owned());
        let asked = [AskedAddress {
            address,
            name: String::new(),
            place,
            memory: Vec::new(),
        }];
        let who = Who {
            blocks: &list,
            core: None,
            owned: find_owners(&list, &asked, Some(10)),
        };
        let (profile, symbols) = (profile(), symbols());
        let options = ReportOptions::default();
        let mut out = Vec::new();
        write_who(
            &ReportInput::new(&profile, &symbols),
            &who,
            &options,
            &mut out,
        )
        .unwrap();
        String::from_utf8(out).unwrap()
    };
    let nowhere = text(0x9000);
    let words = "in no recorded block of 2 programs of process 10\n     mapped there: /lib/x.so\n";
    assert!(nowhere.contains(words), "{nowhere}");
    let first = text(0x1010);
    let words = "mapped there by a later program of this process: /lib/x.so";
    assert!(
        first.contains("of program 1 (10)") && first.contains(words),
        "{first}"
    );
    let last = text(0x5010);
    assert!(last.contains("mapped there: /lib/x.so"), "{last}");
}
