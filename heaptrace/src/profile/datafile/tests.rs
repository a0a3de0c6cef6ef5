//! Tests of the data file as a whole: written to a real file, read back, cut and spoiled.

use std::path::{Path, PathBuf};

use super::*;
use crate::join::{
    Allocator, Completeness, DutyCycle, Errors, Kind, Location, LocationId, Module, ModuleId,
    Process, ProcessId, Quality, RateChange, Site, SiteId, Stack, StackId, ThreadNameId, Totals,
    Update,
};
use crate::profile::{Frame, Profile, RunEnd, RunInfo, StringId, Symbols};

fn totals(n: u64) -> Totals {
    Totals {
        allocations: 10 * n,
        allocated_bytes: u64::MAX - n,
        frees: n,
        freed_bytes: 4 * n,
        live_allocations: 9 * n,
        live_bytes: 96 * n,
        uncertain_allocations: 2 * n,
        uncertain_bytes: 11 * n,
        peak_live_bytes: 97 * n,
        temporary_allocations: n / 2,
        errors: Errors {
            allocations: n,
            allocated_bytes: n + 1,
            frees: n + 2,
            freed_bytes: n + 3,
            live_allocations: n + 4,
            live_bytes: n + 5,
            peak_live_bytes: n + 6,
            temporary_allocations: n + 7,
        },
    }
}

fn update(n: u32) -> Update {
    Update {
        elapsed_ns: u64::from(n) * 1_000_000_000,
        modules: vec![Module {
            path: format!("/usr/lib/lib{n}.so"),
            build_id: vec![n as u8; 20],
            text_start: 0x7f00_0000_0000,
            text_end: 0x7f00_0001_0000,
            text_offset: 0x1000,
            root: String::new(),
        }],
        locations: vec![
            Location {
                module: Some(ModuleId(n)),
                address: 0x1234,
            },
            Location {
                module: None,
                address: 0xffff_ffff_ff60_0000,
            },
        ],
        stacks: vec![Stack {
            locations: vec![LocationId(2 * n), LocationId(2 * n + 1)],
            completeness: match n % 3 {
                0 => Completeness::Complete,
                1 => Completeness::Truncated,
                _ => Completeness::Broken,
            },
        }],
        threads: vec![format!("worker\x1b{n}")],
        processes: vec![(
            ProcessId(0),
            Process {
                pid: 42,
                start_time_ns: 7,
                command: "a\x1b[2Jb".to_owned(),
                command_line: "a b".to_owned(),
                cgroup: "/user.slice".to_owned(),
                ended: n > 1,
                totals: totals(n.into()),
                untracked_frees: 3,
                failed_allocations: 1,
                lost: 5,
                merged: 6,
                allocators: vec![Allocator {
                    path: "/usr/lib/libc.so.6".to_owned(),
                    kind: "glibc".to_owned(),
                    hooks: vec!["malloc".to_owned(), "free".to_owned()],
                }],
                duty_cycle: (n > 0).then_some(DutyCycle {
                    from_ns: 8,
                    unprobed_ns: 9 * u64::from(n),
                    overhead: 10,
                }),
            },
        )],
        sites: vec![(
            SiteId(n),
            Site {
                process: ProcessId(0),
                stack: StackId(n),
                thread: (n > 0).then_some(ThreadNameId(n)),
                kind: if n > 0 { Kind::Mapped } else { Kind::Heap },
                totals: totals(u64::from(n) + 1),
            },
        )],
        sizes: vec![n.into(), 7],
        rates: vec![RateChange {
            at_ns: n.into(),
            process: (n > 0).then_some(ProcessId(0)),
            mean_bytes: 1 << n,
        }],
        totals: totals(u64::from(n) + 1),
        quality: Quality {
            samples: 10,
            lost: [("ring full".to_owned(), 2), ("stack".to_owned(), 0)].into(),
            untracked_frees: 3,
            failed_allocations: 1,
            stacks_complete: 4,
            stacks_truncated: 5,
            stacks_broken: 6,
            noted: [("nested_calls".to_owned(), 3)].into(),
            unprobed: ["/lib/x.so".to_owned()].into(),
            without_tables: ["cc1 (7): /lib/x.so: no room".to_owned()].into(),
            unreadable: ["/lib/y.so: too slow".to_owned()].into(),
            hit_ns: 640,
            max_overhead: 500,
            kernel_map_bytes: 1 << 30,
            agent_cpu_ns: 12,
            agent_peak_bytes: 13,
        },
    }
}

fn symbols() -> Symbols {
    Symbols {
        strings: vec!["main".to_owned(), "/src/main.c".to_owned()],
        frames: vec![
            vec![Frame {
                function: Some(StringId(0)),
                file: Some(StringId(1)),
                line: 12,
                inlined: true,
            }],
            vec![],
            vec![Frame {
                function: None,
                file: None,
                line: 0,
                inlined: false,
            }],
        ],
    }
}

fn read_until(path: &Path, until: u64) -> Result<Recording, DataFileError> {
    let options = ReadOptions {
        until,
        ..ReadOptions::default()
    };
    open(path)?.read(options)
}

/// Writes three updates and symbols; also gives every state that a reader may see, and the bytes.
fn written(dir: &Path) -> (PathBuf, Vec<Profile>, Vec<u8>) {
    let path = dir.join("heaptrace.data");
    let mut writer = DataFileWriter::create(&path, &RunInfo::exact("--pid 42")).unwrap();
    let mut states = vec![Profile::new(RunInfo::exact("--pid 42"))];
    for n in 0..3 {
        let update = update(n);
        writer.update(&update).unwrap();
        let mut next = states.last().unwrap().clone();
        next.fold(update).unwrap();
        states.push(next);
    }
    writer.symbols(&symbols()).unwrap();
    writer.finish(5_000_000_000).unwrap();
    let mut ended = states.last().unwrap().clone();
    ended.end = RunEnd::Orderly;
    ended.duration_ns = 5_000_000_000;
    states.push(ended);
    let bytes = std::fs::read(&path).unwrap();
    (path, states, bytes)
}

/// Check that everything that was written is read, and nothing is complained about.
#[test]
fn round_trip() {
    let dir = tempfile::tempdir().unwrap();
    let (path, states, _) = written(dir.path());
    let recording = read(&path).unwrap();
    assert_eq!(&recording.profile, states.last().unwrap());
    assert_eq!(recording.symbols, Some(symbols()));
    assert_eq!(recording.warnings, Vec::<String>::new());
}

/// Check that a file can be read as it was at any time, with names that were written later, and what
/// is said where nothing was known yet.
#[test]
fn earlier_times() {
    let dir = tempfile::tempdir().unwrap();
    let (path, states, _) = written(dir.path());
    const SECOND: u64 = 1_000_000_000;
    // Updates are of 0, 1 and 2 seconds.
    for (until, state, end) in [
        (0, 1, RunEnd::WentOn),
        (2 * SECOND - 1, 2, RunEnd::WentOn),
        (2 * SECOND, 4, RunEnd::Orderly),
    ] {
        let recording = read_until(&path, until).unwrap();
        let expected = Profile {
            end,
            ..states[state].clone()
        };
        assert_eq!(recording.profile, expected, "{until}");
        assert_eq!(recording.symbols, Some(symbols()));
        assert_eq!(recording.warnings, Vec::<String>::new());
        let times: Vec<_> = recording.snapshots.iter().map(|it| it.elapsed_ns).collect();
        assert_eq!(times, [0, SECOND, 2 * SECOND]);
        assert_eq!(recording.snapshots[1].totals, totals(2));
    }

    let mut late = Profile::new(RunInfo::exact("--pid 42"));
    late.fold(update(0)).unwrap();
    late.duration_ns = 7 * SECOND;
    let mut writer = DataFileWriter::create(&path, &RunInfo::exact("--pid 42")).unwrap();
    writer.update(&late.to_update()).unwrap();
    assert_eq!(read(&path).unwrap().profile, late);
    let recording = read_until(&path, SECOND).unwrap();
    assert_eq!(recording.profile.sites, []);
    assert!(recording.warnings[0].contains("nothing before 7.00 s"));
}

/// Check that what a writer that was killed leaves can be read, with a warning that says when.
#[test]
fn killed_writer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let mut writer = DataFileWriter::create(&path, &RunInfo::exact("--pid 42")).unwrap();
    writer.update(&update(0)).unwrap();
    writer.update(&update(1)).unwrap();
    // Still open: nothing may wait in a buffer.
    let recording = read(&path).unwrap();
    assert_eq!(recording.profile.end, RunEnd::CutOff);
    assert_eq!(recording.profile.sites.len(), 2);
    assert_eq!(recording.warnings.len(), 1);
    assert!(recording.warnings[0].contains("1.00 s into the run"));
}

/// Check that a file cut at any byte gives an earlier state or a clear error, and more bytes never
/// give less.
#[test]
fn cut_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let (_, states, bytes) = written(dir.path());
    let mut reached = 0;
    for len in 0..bytes.len() {
        match read_from(&bytes[..len], "it", ReadOptions::default()) {
            Ok(recording) => {
                let state = states.iter().position(|s| *s == recording.profile);
                let state = state.unwrap_or_else(|| panic!("cut at {len}: not an earlier state"));
                assert!(state >= reached, "cut at {len}");
                assert_eq!(recording.warnings.len(), 1, "cut at {len}");
                assert!(!recording.is_damaged, "cut at {len}");
                reached = state;
            }
            Err(DataFileError::Empty { .. }) => assert_eq!(len, 0),
            Err(DataFileError::NoStart { .. }) => assert_eq!(reached, 0),
            Err(error) => panic!("cut at {len}: {error}"),
        }
    }
    assert_eq!(reached, states.len() - 2);
}

/// Check that any flipped bit gives an earlier state or a clear error, never something else.
#[test]
fn flipped_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let (_, states, bytes) = written(dir.path());
    for at in 0..bytes.len() {
        for bit in [0, 3, 7] {
            let mut spoiled = bytes.clone();
            spoiled[at] ^= 1 << bit;
            match read_from(spoiled.as_slice(), "it", ReadOptions::default()) {
                Ok(recording) => {
                    assert!(
                        states[..states.len() - 1].contains(&recording.profile),
                        "bit {bit} of byte {at}: not an earlier state"
                    );
                    // The length of the last chunk: the file could as well be cut there.
                    let is_last = at + 32 > bytes.len();
                    assert!(recording.is_damaged || is_last, "bit {bit} of byte {at}");
                    assert_eq!(recording.warnings.len(), 1);
                }
                Err(DataFileError::NotADataFile { .. }) => assert!(at < 8),
                Err(DataFileError::Newer { .. }) => assert!((8..12).contains(&at)),
                Err(DataFileError::NoStart { .. }) => assert!(at >= 8),
                Err(error) => panic!("bit {bit} of byte {at}: {error}"),
            }
        }
    }
}

/// Check that chunks that are whole, but contradict each other, stop the reader at the last state
/// that made sense.
#[test]
fn whole_but_senseless() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let mut writer = DataFileWriter::create(&path, &RunInfo::exact("--pid 42")).unwrap();
    writer.update(&update(0)).unwrap();
    writer
        .update(&Update {
            sites: vec![(
                SiteId(0),
                Site {
                    process: ProcessId(9),
                    stack: StackId(0),
                    thread: None,
                    kind: Kind::Heap,
                    totals: Totals::default(),
                },
            )],
            ..Update::default()
        })
        .unwrap();
    writer.finish(1).unwrap();
    let recording = read(&path).unwrap();
    assert_eq!(recording.profile.end, RunEnd::CutOff);
    assert_eq!(recording.profile.sites.len(), 1);
    assert!(recording.warnings[0].contains("process entry 9"));
    assert!(recording.is_damaged);
}

/// Check that an update too large for one chunk comes back as one update, and counts only whole.
#[test]
fn large_update() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let large = Update {
        modules: update(0).modules,
        locations: (0..2_000_000)
            .map(|address| Location {
                module: Some(ModuleId(0)),
                address: address * 0x1_0001,
            })
            .collect(),
        ..Update::default()
    };
    let mut writer = DataFileWriter::create(&path, &RunInfo::exact("--pid 42")).unwrap();
    writer.update(&update(0)).unwrap();
    let before = path.metadata().unwrap().len();
    writer.update(&large).unwrap();
    let recording = read(&path).unwrap();
    assert_eq!(recording.profile.locations.len(), 2_000_002);
    assert_eq!(recording.profile.locations[2..], large.locations);

    let bytes = std::fs::read(&path).unwrap();
    let recording = read_from(&bytes[..bytes.len() - 1], "it", ReadOptions::default()).unwrap();
    assert_eq!(recording.profile.locations.len(), 2);
    assert!(bytes.len() as u64 > before);
}

/// Check that symbols beyond the size of a chunk survive.
#[test]
fn large_symbols() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let symbols = Symbols {
        strings: (0..40_000).map(|i| format!("{i:0>500}")).collect(),
        frames: vec![symbols().frames[0].clone(); 100_000],
    };
    let mut writer = DataFileWriter::create(&path, &RunInfo::exact("--pid 42")).unwrap();
    writer.symbols(&symbols).unwrap();
    writer.finish(1).unwrap();
    assert_eq!(read(&path).unwrap().symbols, Some(symbols));
}

/// Check that each kind of wrong file gets its own error, which names the file.
#[test]
fn wrong_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    assert!(matches!(read(&path), Err(DataFileError::Missing { .. })));
    assert!(matches!(read(dir.path()), Err(DataFileError::Read { .. })));
    std::fs::write(&path, "").unwrap();
    assert!(matches!(read(&path), Err(DataFileError::Empty { .. })));
    std::fs::write(&path, "PERFILE2 and more of it").unwrap();
    assert!(matches!(
        read(&path),
        Err(DataFileError::NotADataFile { .. })
    ));
    let newer = [MAGIC.as_slice(), &2u32.to_le_bytes(), b"whatever"].concat();
    std::fs::write(&path, newer).unwrap();
    let error = read(&path).unwrap_err();
    assert!(matches!(error, DataFileError::Newer { version: 2, .. }));
    assert!(error.to_string().contains(path.to_str().unwrap()));
}

/// Check that bytes behind the end are noticed and do no harm.
#[test]
fn trailing_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let (_, states, mut bytes) = written(dir.path());
    bytes.extend(b"more");
    let recording = read_from(bytes.as_slice(), "it", ReadOptions::default()).unwrap();
    assert_eq!(&recording.profile, states.last().unwrap());
    assert_eq!(recording.warnings.len(), 1);
}

/// Check that a device that takes nothing gives the write error, and that the path is named.
#[test]
fn full_device() {
    let error =
        DataFileWriter::create(Path::new("/dev/full"), &RunInfo::exact("--pid 42")).unwrap_err();
    assert!(matches!(error, DataFileError::Write { .. }));
    let text = error.to_string();
    assert!(text.contains("/dev/full") && text.contains("No space left"));
}

/// Check that after a write that failed half way the file ends with the last whole chunk, and that
/// the writer stays dead.
#[test]
fn disk_full_half_way() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let mut writer = DataFileWriter::create(&path, &RunInfo::exact("--pid 42")).unwrap();
    writer.update(&update(0)).unwrap();
    let whole = std::fs::read(&path).unwrap();
    // A file size limit is the full disk that a test can have without root. It is the process's,
    // so the test runs itself again in another one.
    if std::env::var_os("HEAPTRACE_TEST_LIMITED").is_none() {
        // Its output comes through a pipe: a file that the tests print to has the limit, too.
        let ended = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "profile::datafile::tests::disk_full_half_way"])
            .env("HEAPTRACE_TEST_LIMITED", "1")
            .output()
            .unwrap();
        assert!(
            ended.status.success(),
            "{}",
            String::from_utf8_lossy(&ended.stdout)
        );
        return;
    }
    let limit = libc::rlimit {
        rlim_cur: whole.len() as u64 + 20,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the pointer is to a live struct; ignoring a signal installs no handler.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
    }
    assert!(matches!(
        writer.update(&update(1)),
        Err(DataFileError::Write { .. })
    ));
    assert_eq!(std::fs::read(&path).unwrap(), whole);
    assert!(matches!(
        writer.update(&update(1)),
        Err(DataFileError::Stopped { .. })
    ));
    assert_eq!(read(&path).unwrap().profile.sites.len(), 1);
}
