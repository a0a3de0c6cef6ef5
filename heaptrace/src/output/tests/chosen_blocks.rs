//! Tests of filters that choose single blocks by age, time and size, with the conditions on their sites.

use super::sample::{self, EVIL};
use super::text;
use crate::join::{
    BlockChanges, BlockOwner, BornBlock, FreedBlock, HowFreed, Kind, StackId, ThreadNameId, Totals,
};
use crate::output::{
    ChosenBlocks, Filter, Format, ReportInput, ReportOptions, select_with_history,
};
use crate::profile::{BlockList, BlockReading, History, Profile, WantedBlocks};

const SECOND: u64 = 1_000_000_000;

fn owner(pid: u32, command: &str) -> BlockOwner {
    BlockOwner {
        serial: pid.into(),
        pid,
        start_time_ns: 5_000,
        command: command.to_owned(),
    }
}

/// A block of a stack that was allocated so many seconds into the run.
fn born(id: u64, size: u64, stack: u32, second: u64) -> BornBlock {
    BornBlock {
        id,
        address: id << 12,
        size,
        stack: StackId(stack),
        thread: 41,
        born_ns: second * SECOND,
        mean: 0,
        is_reallocated: false,
    }
}

/// The blocks of the sample at ten seconds, by what a filter asks of them. Process 42 ended at four seconds.
fn blocks(filter: &Filter, has_all: bool) -> BlockList {
    let freed = |id, second| FreedBlock {
        id,
        how: HowFreed::Freed,
        freed_ns: second * SECOND,
        thread: 41,
    };
    let mut reading = BlockReading::new(WantedBlocks::classes(filter.block_conditions()));
    let of_server = BlockChanges {
        owner: owner(41, "server"),
        at_ns: 10 * SECOND,
        has_all,
        born: vec![
            born(1, 1_000, 0, 1),
            born(2, 10, 0, 8),
            born(3, 300, 2, 9),
            born(4, 7, 2, 2),
            born(5, 100, 4, 1),
        ],
        freed: vec![freed(4, 3), freed(5, 9)],
        ..BlockChanges::default()
    };
    let of_other = BlockChanges {
        owner: owner(42, EVIL),
        at_ns: 10 * SECOND,
        has_all,
        born: vec![born(6, 64, 1, 1), born(7, 65, 1, 3)],
        ended_ns: Some(4 * SECOND),
        ..BlockChanges::default()
    };
    for changes in [of_server, of_other] {
        reading.add(changes, false, 5).unwrap();
    }
    reading.finish()
}

fn chosen(text: &str, has_all: bool) -> Profile {
    let filter: Filter = text.parse().unwrap();
    let blocks = blocks(&filter, has_all);
    let mut history = History::default();
    let symbols = sample::symbols();
    let filters = std::slice::from_ref(&filter);
    let profile = sample::profile();
    select_with_history(profile, &mut history, &symbols, filters, Some(&blocks))
}

/// The live, left and freed bytes.
fn bytes(totals: &Totals) -> [u64; 3] {
    [totals.live_bytes, totals.left_bytes, totals.freed_bytes]
}

/// Check that blocks are chosen by their own age, time and size, that conditions on their sites and `and`, `or` and `not` decide together
/// with these, and that freed blocks count if the file has all.
#[test]
fn blocks_are_chosen_one_by_one() {
    for (text, expected) in [
        // The age of a live block is that at the end, of a freed one that at its free, of a left one that at the end of its process.
        ("age>=2s", [1_010, 64, 100]),
        ("age<2s", [300, 65, 7]),
        ("age=2s", [10, 0, 0]),
        ("time=1s..2s", [1_000, 64, 107]),
        ("time>8500ms", [300, 0, 0]),
        ("size>=300", [1_300, 0, 0]),
        ("size=64", [0, 64, 0]),
        ("size<64 or size>64 and size<1000", [310, 65, 107]),
        ("not age>=2s", [300, 65, 7]),
        ("age>=2s and function=grab", [1_010, 0, 0]),
        ("age>=5s or function=recurse", [1_300, 0, 107]),
        ("age>=5s and not function=grab", [0, 0, 100]),
        ("pid=41 and not (age<5s or size<=100)", [1_000, 0, 0]),
        ("pid=42 and age<10m", [0, 129, 0]),
    ] {
        let all = chosen(text, true);
        assert_eq!(bytes(&all.totals), expected, "{text}");
        let mut sums = [0; 3];
        for process in &all.processes {
            let of_process = bytes(&process.totals);
            sums = [0, 1, 2].map(|at| sums[at] + of_process[at]);
        }
        assert_eq!(sums, expected, "{text}");
        assert!(all.sites.iter().all(|it| it.totals.peak_live_bytes == 0));
        // Without, what was freed is not there, and changes nothing else.
        let lasting = chosen(text, false);
        let [live, left, _] = expected;
        assert_eq!(bytes(&lasting.totals), [live, left, 0], "{text}");
    }
    assert_eq!(chosen("age>1h", true).sites, []);
}

/// Check that freed blocks can be left out, as in a part of a run, and that those that were not freed stay. (They counted as allocated.)
#[test]
fn freed_blocks_are_left_out_of_a_part_of_a_run() {
    let filter: Filter = "age<10m".parse().unwrap();
    let mut blocks = blocks(&filter, true);
    blocks.forget_freed();
    let filters = std::slice::from_ref(&filter);
    let symbols = sample::symbols();
    let mut history = History::default();
    let profile = sample::profile();
    let found = select_with_history(profile, &mut history, &symbols, filters, Some(&blocks));
    assert_eq!(bytes(&found.totals), [1_310, 129, 0]);
    assert_eq!(found.totals.allocated_bytes, 1_439);
}

/// Check that mappings, which are no blocks, match only by what is known of them, and that a stack of several threads is one.
#[test]
fn mappings_have_no_age() {
    let mut profile = sample::profile();
    profile.sites[3].kind = Kind::Mapped;
    profile.sites[3].totals.live_bytes = 4_096;
    let mut again = profile.sites[0];
    again.thread = Some(ThreadNameId(1));
    profile.sites.push(again);
    for (text, mapped, sites) in [("age>1s", 0, 1), ("age>5s or kind=mmap", 4_096, 2)] {
        let filter: Filter = text.parse().unwrap();
        let blocks = blocks(&filter, false);
        let filters = std::slice::from_ref(&filter);
        let symbols = sample::symbols();
        let mut history = History::default();
        let profile = profile.clone();
        let found = select_with_history(profile, &mut history, &symbols, filters, Some(&blocks));
        let is_mapped = |it: &&crate::join::Site| it.kind == Kind::Mapped;
        let found_mapped = found.sites.iter().filter(is_mapped);
        let sum: u64 = found_mapped.map(|it| it.totals.live_bytes).sum();
        assert_eq!(sum, mapped, "{text}");
        let of_server = found.sites.iter().filter(|it| it.process.0 == 0);
        assert_eq!(of_server.count(), sites, "{text}");
    }
}

/// Check that text and JSON say what is not known of single blocks: peaks, and without all events what was freed.
#[test]
fn reports_say_what_is_not_known() {
    let filter: Filter = "size>=300".parse().unwrap();
    let filters = std::slice::from_ref(&filter);
    let symbols = sample::symbols();
    for has_freed in [false, true] {
        let profile = chosen("size>=300", has_freed);
        let input = ReportInput {
            filters,
            chosen_blocks: Some(ChosenBlocks { has_freed }),
            ..ReportInput::new(&profile, &symbols)
        };
        let report = text(&Format::Text(ReportOptions::default()), &input);
        assert!(report.contains("size is that of each block"), "{report}");
        assert!(!report.contains("peak"), "{report}");
        assert_eq!(report.contains("allocated  "), has_freed, "{report}");
        let json = text(&Format::Json, &input);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["chosen_blocks"]["has_freed"], has_freed);
        assert_eq!(json["totals"]["live_bytes"], 1_300);
    }
}
