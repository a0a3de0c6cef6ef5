//! Tests of the data file as a whole: written to a real file, read again, cut and damaged.

mod blocks;
mod sample;
mod types;
mod updates;

use std::path::{Path, PathBuf};

use super::format::MAGIC;
use super::*;
use crate::join::{
    FunctionId, Location, Loss, ModuleId, Note, ProcessId, Quality, Site, SiteId, StackId, Update,
};
use crate::profile::{Frame, Profile, RunEnd, RunInfo, StringId, Symbols};
use sample::{totals, update};
use types::types;

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
        types: types(1),
    }
}

fn read_until(path: &Path, until: u64) -> Result<Recording, DataFileError> {
    let options = ReadOptions {
        until,
        ..ReadOptions::default()
    };
    open(path)?.read(options)
}

/// Writes three updates and symbols. Returns every state that a reader may see, and the bytes.
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

/// Check that everything is read as it was written, without a warning.
#[test]
fn everything_is_read_as_written() {
    let dir = tempfile::tempdir().unwrap();
    let (path, states, _) = written(dir.path());
    let recording = read(&path).unwrap();
    assert_eq!(&recording.profile, states.last().unwrap());
    assert_eq!(recording.symbols, Some(symbols()));
    assert_eq!(recording.warnings, Vec::<String>::new());
}

/// Check that a file can be read as it was at an earlier time, with names that were written later: at the update
/// that is nearest to that time, and with a warning if there is none near it. (Once, `--at 5s` showed 4 s where
/// the update listed as 5.0 s came 40 ms after it.)
#[test]
fn earlier_times_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let (path, states, _) = written(dir.path());
    const SECOND: u64 = 1_000_000_000;
    // The updates are from 0, 1 and 2 seconds.
    for (until, state, end) in [
        (0, 1, RunEnd::WentOn),
        (SECOND - 40_000_000, 2, RunEnd::WentOn),
        (SECOND, 2, RunEnd::WentOn),
        (SECOND + SECOND / 2, 2, RunEnd::WentOn),
        (2 * SECOND - 1, 4, RunEnd::Orderly),
        (2 * SECOND, 4, RunEnd::Orderly),
        (900 * SECOND, 4, RunEnd::Orderly),
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
    assert_eq!(recording.profile, late);
    assert!(recording.warnings[0].contains("nothing before 7.00 s"));
    assert_eq!(recording.warnings.len(), 2, "{:?}", recording.warnings);
    let near = read_until(&path, 7 * SECOND - 40_000_000).unwrap();
    assert_eq!(near.warnings.len(), 1, "{:?}", near.warnings);
}

/// Check that the counts of every loss and every note are read as they were written.
#[test]
fn losses_and_notes_are_read_as_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let losses = Loss::ALL.iter().map(|it| it.name().to_owned());
    let notes = Note::ALL.iter().map(|it| it.name().to_owned());
    let update = Update {
        quality: Quality {
            lost: losses.zip(0..).collect(),
            noted: notes.zip(0..).collect(),
            ..Quality::default()
        },
        ..Update::default()
    };
    let mut writer = DataFileWriter::create(&path, &RunInfo::exact("--pid 42")).unwrap();
    writer.update(&update).unwrap();
    let quality = read(&path).unwrap().profile.quality;
    assert_eq!(quality, update.quality);
    assert_eq!(quality.lost.len(), Loss::ALL.len());
    assert_eq!(quality.noted.len(), Note::ALL.len());
}

/// Check that the file of a killed writer can be read, with a warning that says how far it goes.
#[test]
fn files_of_killed_writers_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let mut writer = DataFileWriter::create(&path, &RunInfo::exact("--pid 42")).unwrap();
    writer.update(&update(0)).unwrap();
    writer.update(&update(1)).unwrap();
    // The file is still open: no bytes may wait in a buffer.
    let recording = read(&path).unwrap();
    assert_eq!(recording.profile.end, RunEnd::CutOff);
    assert_eq!(recording.profile.sites.len(), 2);
    assert_eq!(recording.warnings.len(), 1);
    assert!(recording.warnings[0].contains("1.00 s into the run"));
}

/// Check that a file that is cut at any byte gives an earlier state or a clear error, and that more bytes
/// never give an earlier one.
#[test]
fn cut_files_give_earlier_states() {
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

/// Check that any flipped bit gives an earlier state or a clear error.
#[test]
fn flipped_bits_give_earlier_states() {
    let dir = tempfile::tempdir().unwrap();
    let (_, states, bytes) = written(dir.path());
    for at in 0..bytes.len() {
        for bit in [0, 3, 7] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            match read_from(damaged.as_slice(), "it", ReadOptions::default()) {
                Ok(recording) => {
                    assert!(
                        states[..states.len() - 1].contains(&recording.profile),
                        "bit {bit} of byte {at}: not an earlier state"
                    );
                    // A damaged length of the last chunk looks like a file that is cut there.
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

/// Check that the reader stops at the last sound state if whole chunks contradict each other.
#[test]
fn contradictions_end_the_reading() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let mut writer = DataFileWriter::create(&path, &RunInfo::exact("--pid 42")).unwrap();
    writer.update(&update(0)).unwrap();
    writer
        .update(&Update {
            sites: vec![(
                SiteId(0),
                Site::of_heap(ProcessId(9), StackId(0), SiteId(0)),
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

/// Check that an update that is too large for one chunk is read as one update, and is dropped if a part is
/// missing.
#[test]
fn large_updates_are_read_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let large = Update {
        modules: update(0).modules,
        locations: (0..2_000_000)
            .map(|address| Location {
                module: Some(ModuleId(0)),
                address: address * 0x1_0001,
                function: None,
            })
            .collect(),
        ..Update::default()
    };
    let mut writer = DataFileWriter::create(&path, &RunInfo::exact("--pid 42")).unwrap();
    writer.update(&update(0)).unwrap();
    let before = path.metadata().unwrap().len();
    writer.update(&large).unwrap();
    let recording = read(&path).unwrap();
    assert_eq!(recording.profile.locations.len(), 2_000_003);
    assert_eq!(recording.profile.locations[3..], large.locations);

    let bytes = std::fs::read(&path).unwrap();
    let recording = read_from(&bytes[..bytes.len() - 1], "it", ReadOptions::default()).unwrap();
    assert_eq!(recording.profile.locations.len(), 3);
    assert!(bytes.len() as u64 > before);
}

/// Check that symbols that are too large for one chunk are read.
#[test]
fn large_symbols_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let symbols = Symbols {
        strings: (0..40_000).map(|i| format!("{i:0>500}")).collect(),
        frames: vec![symbols().frames[0].clone(); 100_000],
        types: types(1_000_000),
    };
    let mut writer = DataFileWriter::create(&path, &RunInfo::exact("--pid 42")).unwrap();
    writer.symbols(&symbols).unwrap();
    writer.finish(1).unwrap();
    assert_eq!(read(&path).unwrap().symbols, Some(symbols));
}

/// Check that a file without functions is read, as older versions write it, and that a language of a later version ends the
/// reading with its number.
#[test]
fn functions_of_other_versions_are_read() {
    // A location: module 0, address 7; then one with the function 0 besides.
    let module = [0x1a, 0].to_vec();
    let plain = [0x22, 4, 0x08, 0, 0x10, 7];
    let with_function = [0x22, 7, 0x08, 0, 0x10, 7, 0xa0, 0x01, 0];
    let function = |language| [0xb2, 0x01, 2, 0x08, language].to_vec();
    let read = |updates: &[Vec<u8>]| {
        let file = crafted(updates, &[]);
        read_from(file.as_slice(), "it", ReadOptions::default()).unwrap()
    };
    let older = read(&[[module.clone(), plain.to_vec()].concat()]);
    let expected = Location {
        module: Some(ModuleId(0)),
        address: 7,
        function: None,
    };
    assert_eq!(older.profile.locations, [expected]);
    assert_eq!(older.profile.functions, []);

    let both = read(&[[module, function(1), with_function.to_vec()].concat()]);
    let expected = Location {
        module: None,
        address: 7,
        function: Some(FunctionId(0)),
    };
    assert_eq!(both.profile.locations, [expected]);

    let newer = read(&[function(9)]);
    assert!(newer.is_damaged);
    assert!(
        newer.warnings[0].contains("unknown language 9"),
        "{:?}",
        newer.warnings
    );
    let dangling = read(&[with_function.to_vec()]);
    assert!(
        dangling.warnings[0].contains("function entry 0"),
        "{:?}",
        dangling.warnings
    );
}

/// Check that each kind of wrong file has its own error, which names the file.
#[test]
fn wrong_files_have_their_own_errors() {
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
    let newer = [MAGIC.as_slice(), &3u32.to_le_bytes(), b"whatever"].concat();
    std::fs::write(&path, newer).unwrap();
    let error = read(&path).unwrap_err();
    assert!(matches!(error, DataFileError::Newer { version: 3, .. }));
    assert!(error.to_string().contains(path.to_str().unwrap()));
}

/// Check that a pipe can be read once, and that the error of the second time says what to do.
#[test]
fn a_pipe_is_read_once() {
    let dir = tempfile::tempdir().unwrap();
    let (_, _, bytes) = written(dir.path());
    let (reader, mut writer) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut writer, &bytes).unwrap();
    drop(writer);
    use std::os::fd::AsRawFd as _;
    let file = open(Path::new(&format!("/proc/self/fd/{}", reader.as_raw_fd()))).unwrap();
    assert!(file.read(ReadOptions::default()).is_ok());
    let error = file.read(ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("is a pipe: store it"), "{error}");
}

/// Check that bytes after the end give a warning and change nothing.
#[test]
fn bytes_after_the_end_give_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let (_, states, mut bytes) = written(dir.path());
    bytes.extend(b"more");
    let recording = read_from(bytes.as_slice(), "it", ReadOptions::default()).unwrap();
    assert_eq!(&recording.profile, states.last().unwrap());
    assert_eq!(recording.warnings.len(), 1);
}

/// Check that a full device gives a write error, which names the path.
#[test]
fn full_devices_are_write_errors() {
    let error =
        DataFileWriter::create(Path::new("/dev/full"), &RunInfo::exact("--pid 42")).unwrap_err();
    assert!(matches!(error, DataFileError::Write { .. }));
    let text = error.to_string();
    assert!(text.contains("/dev/full") && text.contains("No space left"));
}

/// Check that the file ends with its last whole chunk after a failed write, and that the writer writes
/// nothing more.
#[test]
fn failed_writes_leave_whole_chunks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let mut writer = DataFileWriter::create(&path, &RunInfo::exact("--pid 42")).unwrap();
    writer.update(&update(0)).unwrap();
    let whole = std::fs::read(&path).unwrap();
    // Without root, a limit of the file size stands for a full disk. The limit belongs to the process, so the
    // test runs itself again in another process.
    if std::env::var_os("HEAPTRACE_TEST_LIMITED").is_none() {
        // Its output goes through a pipe, because the limit applies to a file that the test prints to.
        let ended = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "profile::datafile::tests::failed_writes_leave_whole_chunks",
            ])
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

/// Check that a copy with other names has them in place of its own, and everything else as it was, also if the file was cut off.
#[test]
fn copies_have_other_names_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _, bytes) = written(dir.path());
    let mut named = symbols();
    named.strings[0] = "renamed".repeat(1000);
    let whole = read(&path).unwrap();
    for length in [bytes.len(), bytes.len() - 1] {
        std::fs::write(&path, &bytes[..length]).unwrap();
        let before = read(&path).unwrap();
        let mut copy = Vec::new();
        let file = open(&path).unwrap();
        file.read(ReadOptions::default()).unwrap();
        file.copy_with_names(&named, &mut copy).unwrap();
        let name = path.to_string_lossy();
        let after = read_from(copy.as_slice(), &name, ReadOptions::default()).unwrap();
        assert_eq!(after.symbols.as_ref(), Some(&named));
        let is_whole = length == bytes.len();
        assert_eq!(after.profile.end == RunEnd::Orderly, is_whole);
        assert_eq!(after.profile, before.profile);
        assert_eq!(after.warnings.is_empty(), is_whole);
        assert_eq!(after.snapshots, whole.snapshots);
    }
}
