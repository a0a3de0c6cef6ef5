//! Tests of the fast path with the C libraries of several Debian releases, which are downloaded and unpacked.
//!
//! They check what `docs/fast.md` claims of versions: that the words of a thread's block that the code uses are free, and that
//! numbers are right.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{GLIBCS, Heaptrace, c_on_glibc, glibc_files, run};
use object::{Object as _, ObjectSegment as _};

/// The bytes of a thread's block that the fast path's code uses.
const USED: std::ops::Range<u8> = 0x80..0xa8;

/// Check that a process on each C library is moved, and has the numbers that it counts itself.
#[test]
fn processes_on_each_version_are_moved() -> Result<()> {
    for (release, version) in GLIBCS {
        let fixture = c_on_glibc("busy", release)?;
        let command = [fixture.as_ref(), "1500".as_ref()];
        let options = ["--fast", "--sample", "64KiB"];
        let recording = Heaptrace::tracing()?.record(&options, &command)?;
        ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
        println!("glibc {version} of {release}");
        recording.report.check_nothing_lost()?;
        assert_eq!(recording.report.moved(), (1, 0), "{version}");
        recording.agrees_with("main").context(version)?;
        // It is that library, and not the machine's own.
        let process = recording.report.process(recording.truth("main")?.pid)?;
        let paths: Vec<&str> = process.allocators.iter().map(|it| &*it.path).collect();
        let folder = format!("/glibc/{release}/");
        ensure!(paths.iter().all(|it| it.contains(&folder)), "{paths:?}");
    }
    Ok(())
}

/// Check that the words are 0 in all threads of an untraced process, after many functions of each C library were used.
#[test]
fn no_version_writes_the_words() -> Result<()> {
    for (release, version) in GLIBCS {
        let ended = run(&mut c_on_glibc("thread_block", release)?.command())?;
        println!("glibc {version}: {}", ended.stdout);
        ended.success().context(version)?;
    }
    Ok(())
}

/// The instructions that name an address in the thread's block within the used bytes: a prefix for `fs`, and an operand that
/// is nothing but an offset of 32 bits. An offset in data that looks so would be found as well.
fn accesses(code: &[u8]) -> usize {
    code.windows(12)
        .filter(|bytes| {
            let prefixed = bytes[0] == 0x64;
            // Up to a REX prefix and an opcode of two bytes lie between the prefix and the operand.
            prefixed
                && (2..=5).any(|at| {
                    let operand = &bytes[at..at + 6];
                    operand[0] & 0xc7 == 0x04
                        && operand[1] == 0x25
                        && USED.contains(&operand[2])
                        && operand[3..6] == [0, 0, 0]
                })
        })
        .count()
}

/// Check that no instruction of the C libraries names these words, and that such an instruction would be found.
#[test]
fn no_instruction_names_the_words() -> Result<()> {
    // `sub qword ptr fs:[0x80], rax`, as the fast path's code has it.
    assert_eq!(
        accesses(&[0x64, 0x48, 0x29, 0x04, 0x25, 0x80, 0, 0, 0, 0x72, 1, 2]),
        1
    );
    for (release, version) in GLIBCS {
        for path in glibc_files(release)? {
            let bytes = fs::read(&path)?;
            let file = object::File::parse(&*bytes)?;
            let mut scanned = 0;
            for segment in file.segments() {
                if !segment.permissions().executable() {
                    continue;
                }
                let code = segment.data()?;
                scanned += code.len();
                let found = accesses(code);
                ensure!(found == 0, "{found} in {} ({version})", path.display());
            }
            ensure!(scanned > 0, "no code in {}", path.display());
        }
    }
    Ok(())
}
