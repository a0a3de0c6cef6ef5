//! Tests of the live table: its rows, its head and its widths.

use super::*;
use crate::join::{
    Completeness, DutyCycle, Kind, Location, LocationId, Mark, MarkCause, Memory, Module, ModuleId,
    ProcessId, Stack, StackId, Totals,
};
use crate::output::{Grouping, groups};
use crate::profile::{Frame, Mode, RunInfo, StringId, Symbols};

const MIB: u64 = 1 << 20;

fn profile(names: &[&str], command: &str) -> (Profile, Symbols) {
    let mut profile = Profile::new(RunInfo::exact("--pid 12"));
    profile.modules.push(Module {
        path: "/usr/lib/lib\x1bc.so".into(),
        ..Module::default()
    });
    profile.processes.push(Process {
        pid: 12,
        command: command.into(),
        ..Process::default()
    });
    let mut symbols = Symbols::default();
    for (index, name) in (0..).zip(names) {
        profile.locations.push(Location {
            module: Some(ModuleId(0)),
            address: 0x100 + u64::from(index),
            function: None,
        });
        symbols.strings.push((*name).to_owned());
        symbols.frames.push(if name.is_empty() {
            Vec::new()
        } else {
            vec![Frame {
                function: Some(StringId(index)),
                file: None,
                line: 0,
                inlined: false,
            }]
        });
    }
    profile.stacks.push(Stack {
        locations: (0..names.len() as u32).map(LocationId).collect(),
        completeness: Completeness::Complete,
    });
    (profile, symbols)
}

fn site(profile: &mut Profile, live_bytes: u64, allocations: u64) {
    profile.sites.push(Site {
        totals: Totals {
            live_bytes,
            allocations,
            ..Totals::default()
        },
        ..Site::of_heap(ProcessId(0), StackId(0), SiteId(0))
    });
}

fn table<'a>(profile: &'a Profile, symbols: &'a Symbols, rows: Rows<'a>) -> Table<'a> {
    Table {
        input: ReportInput::new(profile, symbols),
        rows,
        metric: Metric::LiveBytes,
    }
}

fn texts(lines: Vec<Line>) -> Vec<String> {
    lines.into_iter().map(|it| it.text).collect()
}

fn lines(profile: &Profile, symbols: &Symbols, width: Option<usize>) -> Vec<String> {
    let ranked = ranked(profile, Metric::LiveBytes, 10);
    texts(table(profile, symbols, Rows::Sites(&ranked)).lines(width))
}

/// The lines from the headings on.
fn rows(lines: &[String]) -> &[String] {
    let empty = lines.iter().position(String::is_empty).unwrap();
    &lines[empty + 1..]
}

fn another(profile: &mut Profile, pid: u32) {
    profile.processes.push(Process {
        pid,
        ..profile.processes[0].clone()
    });
}

/// Check that the ranking selects and sorts the largest sites, keeps equal ones in order, and drops
/// zeros.
#[test]
fn ranking_sorts_the_largest() {
    let (mut profile, _) = profile(&["a"], "x");
    for (live, allocations) in [(5, 1), (9, 1), (0, 7), (9, 1), (7, 1)] {
        site(&mut profile, live, allocations);
    }
    let top = |metric, most| ranked(&profile, metric, most);
    assert_eq!(top(Metric::LiveBytes, 3), [1, 3, 4].map(SiteId));
    assert_eq!(top(Metric::LiveBytes, 10), [1, 3, 4, 0].map(SiteId));
    assert_eq!(top(Metric::TotalAllocations, 1), [SiteId(2)]);
    assert_eq!(top(Metric::PeakBytes, 10), []);
    assert_eq!(top(Metric::LiveBytes, 0), []);
}

/// Check that a line shows counters and the functions from the user's on, and names the process if there are several.
#[test]
fn rows_show_sites() {
    let names = ["operator new(unsigned long)", "parse", "", "run", "main"];
    let (mut profile, symbols) = profile(&names, "server");
    site(&mut profile, 2048, 1234);
    assert_eq!(
        rows(&lines(&profile, &symbols, None)),
        [
            " live bytes  live blocks  total bytes  allocations  allocated by",
            "    2.0 KiB            0          0 B        1,234  parse ← [lib\\x1bc.so+0x102] ← run",
        ]
    );
    another(&mut profile, 13);
    let lines = lines(&profile, &symbols, Some(80));
    assert_eq!(
        rows(&lines),
        [
            " live bytes  live blocks  process     allocated by",
            "    2.0 KiB            0  server[12]  parse ← [lib\\x1bc.so+0x102] ← run",
        ]
    );
    assert!(
        lines[0].contains(", exact, 2 processes: --pid 12"),
        "{lines:?}"
    );
}

/// Check that the line of a group shows its totals, its number of processes, and an escaped name.
#[test]
fn rows_show_groups() {
    let (mut profile, symbols) = profile(&["parse", "main"], "ser\x1bver");
    another(&mut profile, 13);
    site(&mut profile, 2048, 3);
    site(&mut profile, 1024, 4);
    profile.sites[1].process = ProcessId(1);
    for (by, name) in [(Label::Process, "ser\\x1bver"), (Label::Function, "parse")] {
        let grouping = Grouping {
            by,
            metric: Metric::LiveBytes,
            cumulative: false,
            top: Some(5),
        };
        let (found, _) = groups(&ReportInput::new(&profile, &symbols), grouping);
        let table = table(&profile, &symbols, Rows::Groups(by, &found));
        let lines = texts(table.lines(Some(90)));
        assert_eq!(
            rows(&lines),
            [
                format!(" live bytes  live blocks  processes  {}", by.name()),
                format!("    3.0 KiB            0          2  {name}"),
            ]
        );
    }
}

/// Check that no line exceeds the width, that the user's function comes before its callers, and that its own name is
/// never cut while there is room for it.
#[test]
fn widths_are_respected() {
    let user = "shop::Shelf<std::vector<int, std::allocator<int>>>::put(std::map<int, int> const&)";
    let (mut profile, symbols) = profile(&[user, "größe", "main"], "fifteen-letters");
    profile.quality.lost.insert("ring full".into(), 1200);
    profile.processes[0].memory.resident = u64::MAX;
    another(&mut profile, u32::MAX);
    site(&mut profile, u64::MAX, u64::MAX);
    for mode in [Mode::Exact, Mode::Sampled { mean_bytes: 4096 }] {
        profile.info.mode = mode;
        for width in 0..300 {
            for line in lines(&profile, &symbols, Some(width)) {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
        for width in [80, 120, 200] {
            let lines = lines(&profile, &symbols, Some(width));
            let row = rows(&lines).last().unwrap();
            assert!(row.contains("::put("), "{width}: {row}");
        }
    }
}

/// Check that names of functions, processes and files can't send control characters to the terminal.
#[test]
fn hostile_names_are_escaped() {
    let (mut profile, symbols) = profile(&["a\x1b[2J\nb", "c\u{202e}d"], "x\x1b]0;hi\x07");
    profile.info.target = "\x1b[31m".into();
    profile.quality.lost.insert("\x1b[5m".into(), 3);
    profile.quality.unprobed.insert("\x1b[6m".into());
    profile.processes[0].duty_cycle = Some(DutyCycle::default());
    another(&mut profile, 13);
    site(&mut profile, 1, 1);
    for line in lines(&profile, &symbols, None) {
        let is_unsafe = |c: char| c.is_control() || c == '\u{202e}';
        assert!(!line.contains(is_unsafe), "{line:?}");
    }
}

/// Check that each warning has a line of its own, that there is none without a reason, and that memory of paused processes
/// is in the rows with the share of time covered.
#[test]
fn warnings_have_lines_of_their_own() {
    let (mut profile, symbols) = profile(&["a"], "redis");
    let head = |profile: &Profile| lines(profile, &symbols, Some(100));
    assert_eq!(head(&profile).iter().position(String::is_empty), Some(2));
    profile.quality.lost.insert("ring full".into(), 1200);
    profile.quality.lost.insert("map full".into(), 0);
    for file in ["/bin/x: stripped", "/bin/y: stripped"] {
        profile.quality.unprobed.insert(file.into());
    }
    profile.duration_ns = 10_000_000_000;
    profile.processes[0].duty_cycle = Some(DutyCycle {
        from_ns: 2_000_000_000,
        unprobed_ns: 7_000_000_000,
        overhead: 3000,
        reached: 480,
    });
    site(&mut profile, 0, 1);
    profile.sites[0].totals.uncertain_bytes = 28 * MIB;
    profile.processes[0].totals.uncertain_bytes = 28 * MIB;
    // That of an ended process is not live.
    another(&mut profile, 13);
    profile.processes[1].ended = true;
    profile.processes[1].merged = 3;
    site(&mut profile, 0, 1);
    profile.sites[1].process = ProcessId(1);
    profile.sites[1].totals.uncertain_bytes = 99 * MIB;
    let lines = head(&profile);
    assert_eq!(
        lines[2..5],
        [
            "lost: 1,200 ring full",
            "not probed: 2 files, such as /bin/x: stripped",
            "redis is paused at times, for its cost: probed 12.5 % of the time; perhaps 28.0 MiB more are live",
        ]
    );
    assert_eq!(
        rows(&lines),
        [
            " live bytes      perhaps   probed  process    allocated by",
            "        0 B   + 28.0 MiB   12.5 %  redis[12]  a",
        ]
    );
}

/// Check that in a sample no number stands alone, and that zero has an upper bound.
#[test]
fn samples_have_intervals() {
    let (mut profile, symbols) = profile(&["a"], "x");
    profile.info.mode = Mode::Sampled {
        mean_bytes: 512 << 10,
    };
    let head = lines(&profile, &symbols, Some(100));
    assert!(
        head[1].starts_with("live below 1.9 MiB, peak below "),
        "{head:?}"
    );
    site(&mut profile, 0, 0);
    let totals = &mut profile.sites[0].totals;
    totals.live_bytes = 3 * MIB;
    totals.errors.live_bytes = MIB;
    totals.errors.mean_bytes = 512 << 10;
    totals.errors.unseen.live_bytes = 2 * MIB;
    for width in [80, 120, 200] {
        let lines = lines(&profile, &symbols, Some(width));
        let row = rows(&lines).last().unwrap();
        assert!(row.contains("3.0 MiB ") && row.contains('–'), "{row}");
        assert!(!row.contains(" 0 B") && !row.contains('?'), "{row}");
    }
}

/// Check that the head says what share of the resident memory is explained, and what was there before.
#[test]
fn memory_is_explained() {
    let (mut profile, symbols) = profile(&["a"], "python3");
    profile.processes[0].memory = Memory {
        resident: 228 * MIB,
        peak_resident: 230 * MIB,
        resident_before: 57 * MIB,
    };
    site(&mut profile, MIB, 1);
    site(&mut profile, 190 * MIB, 1);
    profile.sites[1].kind = Kind::Mapped;
    profile.totals.live_bytes = 191 * MIB;
    let head = |profile: &Profile, width| lines(profile, &symbols, width);
    let known = "heap 1.0 MiB + mapped 190.0 MiB of 228.0 MiB resident";
    let rest =
        "not explained: 37.0 MiB (files, stacks, up to 37.0 MiB from before tracing: 16.2 %)";
    assert_eq!(head(&profile, Some(100))[2..4], [known, rest]);
    assert_eq!(head(&profile, None)[2], format!("{known}, {rest}"));
    assert!(head(&profile, None)[3].contains("PYTHONMALLOC=malloc"));
    profile.processes[0].command = "server".into();
    let about = "mapped: if these are arenas of an allocator, each counts at the call";
    assert_eq!(head(&profile, Some(80))[4], about);
    profile.processes[0].memory.resident = 100 * MIB;
    let line = head(&profile, None)[2].clone();
    let touched = "of 100.0 MiB resident, not all of it touched";
    assert!(line.ends_with(touched), "{line}");
}

/// Check that the head names the filters and why more may match, and compares no part of a process with its whole memory.
#[test]
fn filters_are_named() {
    let (mut profile, symbols) = profile(&["a"], "server");
    profile.processes[0].memory.resident = 100 * MIB;
    site(&mut profile, MIB, 1);
    let warnings = ["names are still looked up: more may match".to_owned()];
    let head = |filter: &str, width| {
        let filters = [filter.parse().unwrap()];
        let table = table(&profile, &symbols, Rows::Sites(&[]));
        let input = ReportInput {
            filters: &filters,
            warnings: &warnings,
            ..table.input
        };
        texts(Table { input, ..table }.lines(width))
    };
    let shown = head("process=server", Some(80));
    assert_eq!(shown[2], "only process=server");
    assert!(shown[3].contains("resident") && shown.contains(&warnings[0]));
    let shown = head("function=\x1ba and pid=1", Some(30));
    assert_eq!(shown[2], "only function=\\x1ba and pid=1");
    assert!(!shown.iter().any(|it| it.contains("resident")), "{shown:?}");
    let long = format!("pid=1{}", " or pid=2".repeat(9));
    assert_eq!(head(&long, Some(30))[2].chars().count(), 30);
}

/// Check that what ended processes left stands apart from what is live.
#[test]
fn left_memory_stands_apart() {
    let (mut profile, symbols) = profile(&["a"], "x");
    another(&mut profile, 13);
    profile.processes[1].ended = true;
    profile.totals.live_bytes = MIB;
    profile.totals.peak_live_bytes = 2 * MIB;
    profile.totals.left_bytes = 120 * MIB;
    let lines = lines(&profile, &symbols, None);
    assert!(lines[0].contains("1 process, 1 ended"), "{}", lines[0]);
    assert!(
        lines[1].starts_with(
            "live 1.0 MiB in 0 blocks, peak 2.0 MiB, left by ended processes 120.0 MiB"
        ),
        "{}",
        lines[1]
    );
}

/// Check that a table of what was allocated since a mark says so, and shows no numbers that are not known of it.
#[test]
fn a_mark_is_named() {
    let (mut profile, symbols) = profile(&["a"], "x");
    site(&mut profile, MIB, 1);
    profile.totals.live_bytes = MIB;
    profile.duration_ns = 42_000_000_000;
    profile.processes[0].memory.resident = 100 * MIB;
    let ranked = ranked(&profile, Metric::LiveBytes, 10);
    let mut table = table(&profile, &symbols, Rows::Sites(&ranked));
    table.input.since = Some(Mark {
        number: 3,
        at_ns: 30_000_000_000,
        cause: MarkCause::Key,
    });
    let lines = texts(table.lines(Some(80)));
    assert_eq!(lines[1], "live 1.0 MiB in 0 blocks, total 0 B in 0 blocks");
    assert_eq!(lines[2], "only what was allocated since mark 3, 12.0 s ago");
    assert_eq!(lines[3], "");
}
