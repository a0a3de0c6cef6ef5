//! What nothing points to, in texts and for programs.

use super::sample;
use crate::join::{ProcessId, Reachability, StackId, UnreachableSite, UnreachableSum};
use crate::output::report_input::ReportInput;
use crate::output::{
    Filter, LeakOptions, ReportOptions, find_leaks, select, write_leaks, write_leaks_json,
};
use crate::profile::{History, Mode, Profile};

fn sum(blocks: u64, bytes: u64, error: u64) -> UnreachableSum {
    UnreachableSum {
        blocks,
        blocks_error: error.min(blocks),
        blocks_unseen: error.min(blocks),
        bytes,
        bytes_error: error,
        bytes_unseen: error,
        mean_bytes: if error > 0 { 64 } else { 0 },
    }
}

fn searched(error: u64) -> Profile {
    let mut profile = sample::profile();
    let site = |stack, direct, indirect| UnreachableSite {
        stack: StackId(stack),
        direct,
        indirect,
    };
    profile.reachability = vec![
        Reachability {
            process: ProcessId(0),
            at_ns: 3_000_000_000,
            stopped_ns: 1_234_567,
            threads: 3,
            memory_bytes: 1 << 30,
            stopped_bytes: 1 << 28,
            unread_bytes: 4096,
            is_whole: false,
            later_readings: 14,
            has_all_blocks: true,
            judged_blocks: 1_000,
            judged_bytes: 2_000_000,
            young_blocks: 7,
            freed_blocks: 1,
            refused: String::new(),
            sites: vec![
                site(0, sum(2, 300, error), sum(5, 700, error)),
                site(2, sum(1, 2_048, error), sum(0, 0, 0)),
            ],
        },
        Reachability {
            process: ProcessId(1),
            refused: "\x1bno".to_owned(),
            ..Reachability::default()
        },
    ];
    profile
}

fn text(profile: &Profile) -> String {
    let symbols = sample::symbols();
    let input = ReportInput::new(profile, &symbols);
    let leaks = find_leaks(&input, &History::default(), &LeakOptions::default());
    let mut out = Vec::new();
    write_leaks(&input, &leaks, &ReportOptions::default(), &mut out).unwrap();
    // Lines break anywhere.
    let text = String::from_utf8(out).unwrap();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn json(profile: &Profile) -> serde_json::Value {
    let symbols = sample::symbols();
    let input = ReportInput::new(profile, &symbols);
    let leaks = find_leaks(&input, &History::default(), &LeakOptions::default());
    let mut out = Vec::new();
    write_leaks_json(&input, &leaks, usize::MAX, &mut out).unwrap();
    serde_json::from_slice(&out).unwrap()
}

/// Check that findings are shown with what the search could not know, and that filters leave them out.
#[test]
fn findings_are_shown_with_their_limits() {
    let profile = searched(0);
    let shown = text(&profile);
    for words in [
        "Unreachable, 3.00 s into the run: 3.0 KiB in 8 blocks, from 2 sites; nothing seemed to point to them",
        "1. 2.0 KiB",
        "1 block, to which nothing points",
        "7 blocks: nothing points to 2, only unreachable blocks to 5 (700 B)",
        "1,000 blocks with 1.9 MiB were looked for in 1.0 GiB of memory. The process (3 threads) was stopped for 1.2 ms, in which \
         25.0 % of it was read",
        "all of it 14 times more",
        "7 blocks were too young",
        "1 block to which nothing seemed to point",
        "4.0 KiB were not read",
        ": \\x1bno.",
    ] {
        assert!(shown.contains(words), "{words}\n{shown}");
    }
    assert!(!shown.contains("the least that leaks"), "{shown}");
    let found = &json(&profile)["unreachable"];
    assert_eq!(found["searches"][0]["stopped_ns"], 1_234_567);
    assert_eq!(found["searches"][0]["later_readings"], 14);
    assert_eq!(found["searches"][1]["refused"], "\x1bno");
    let second = &found["sites"][1];
    assert_eq!(
        (&second["direct_blocks"], &second["indirect_bytes"]),
        (&2.into(), &700.into())
    );
    assert!(second["bytes_error"].is_null());

    let other: Filter = "pid=42".parse().unwrap();
    let other = select(profile, &sample::symbols(), &[other]);
    let found = &json(&other)["unreachable"];
    assert_eq!(found["sites"].as_array().map(Vec::len), Some(0));
    assert_eq!(found["searches"].as_array().map(Vec::len), Some(1));
    assert!(json(&sample::profile())["unreachable"].is_null());
}

/// Check that a sample shows ranges, and that it finds the least.
#[test]
fn samples_have_ranges() {
    let mut profile = searched(100);
    profile.info.mode = Mode::Sampled { mean_bytes: 64 };
    profile.reachability[0].has_all_blocks = false;
    let shown = text(&profile);
    assert!(shown.contains("in about 8 blocks"), "{shown}");
    assert!(shown.contains("the least that leaks"), "{shown}");
    let site = &json(&profile)["unreachable"]["sites"][0];
    let number = |name: &str| site[name].as_u64().unwrap();
    assert_eq!(number("bytes_error"), 100);
    assert!(number("bytes_low") < 2_048 && number("bytes_high") > 2_048);
}
