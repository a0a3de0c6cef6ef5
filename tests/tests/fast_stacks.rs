//! Tests of stacks on the fast path: those of a moved process are gdb's, and those of the same process without `--fast`.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{
    Backtrace, Fixture, Heaptrace, Report, WAIT_UNTIL_MOVED, backtraces, c_moved, cpp_moved,
};

/// Two C compilers, those for C++, and a level of optimization for each: those two differ most in their frames.
const COMPILERS: [(&str, &str, &str); 2] = [("gcc", "g++", "-O2"), ("clang", "clang++", "-O0")];

/// Records a fixture that was moved before its `main` began. The mean is so small that blocks of 1000 bytes or more are all
/// sampled, by the target's own code.
fn record_moved(fixture: &Fixture) -> Result<Report> {
    let command = [
        "env".as_ref(),
        OsStr::new(WAIT_UNTIL_MOVED),
        fixture.as_ref(),
    ];
    let recording = Heaptrace::tracing()?.record(&["--fast", "--sample", "32"], &command)?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    recording.report.check_nothing_lost()?;
    assert_eq!(recording.report.moved(), (1, 0));
    Ok(recording.report)
}

/// The stacks that gdb shows at the calls of `malloc` with these sizes, in a run that is not traced.
fn stacks_of_gdb(fixture: &Fixture, sizes: &[u64]) -> Result<BTreeMap<u64, Backtrace>> {
    let folder = Heaptrace::offline()?;
    let stacks = backtraces(folder.folder(), &[fixture], sizes)?;
    ensure!(stacks.len() == sizes.len(), "{} stacks", stacks.len());
    Ok(stacks)
}

/// Check that gdb finds the same functions and addresses for every kind of frame as heaptrace does in a moved process.
#[test]
fn frames_of_a_moved_process_are_those_of_gdb() -> Result<()> {
    let sizes: Vec<u64> = (1001..=1014).collect();
    for (compiler, _, level) in COMPILERS {
        let options = [level, "-fomit-frame-pointer"];
        let fixture = c_moved(
            "frames",
            &format!("frames-moved-{compiler}"),
            compiler,
            &options,
        )?;
        let stacks = stacks_of_gdb(&fixture, &sizes)?;
        let frames = record_moved(&fixture)?.has_stacks_of_gdb(&stacks);
        let frames = frames.context(compiler)?;
        println!("{compiler}: {frames} frames as gdb has them");
    }
    Ok(())
}

/// Check the same where an exception is created, during its unwinding, and where it is caught. The unwinder passes the
/// fast path's code, of which it knows nothing.
#[test]
fn frames_around_exceptions_of_a_moved_process_are_those_of_gdb() -> Result<()> {
    for (_, compiler, level) in COMPILERS {
        let options = [level, "-fomit-frame-pointer"];
        let fixture = cpp_moved(
            "throws",
            &format!("throws-moved-{compiler}"),
            compiler,
            &options,
        )?;
        let stacks = stacks_of_gdb(&fixture, &[2003, 2004, 2005, 3129])?;
        let frames = record_moved(&fixture)?.has_stacks_of_gdb(&stacks);
        frames.context(compiler)?;
    }
    Ok(())
}

/// The stacks of a report's largest blocks, by size: their functions and how they end.
fn stacks(report: &Report) -> BTreeMap<u64, Vec<(Vec<&str>, &str)>> {
    let mut stacks = BTreeMap::<u64, Vec<_>>::new();
    for site in &report.sites {
        let size = site.totals.allocated_bytes / site.totals.allocations.max(1);
        if size >= 1000 {
            let frames = site.stack.iter();
            let names = frames.map(|it| it.function.as_deref().unwrap_or_default());
            let stack = (names.collect(), site.stack_end.as_str());
            stacks.entry(size).or_default().push(stack);
        }
    }
    for stacks in stacks.values_mut() {
        stacks.sort();
    }
    stacks
}

/// Check that coroutines, and calls by 64 similar paths, have the same stacks in a moved process as without `--fast`.
#[test]
fn stacks_are_those_without_the_fast_path() -> Result<()> {
    for name in ["contexts", "twins"] {
        let options = ["-O2", "-fomit-frame-pointer"];
        let fixture = c_moved(name, &format!("{name}-moved"), "gcc", &options)?;
        let exact = Heaptrace::tracing()?.record_all(&[&fixture])?.report;
        let moved = record_moved(&fixture)?;
        let (expected, mut found) = (stacks(&exact), stacks(&moved));
        ensure!(expected.len() >= 5, "{name}: {expected:?}");
        // `env` has allocated as well, before it started the program.
        found.retain(|size, _| expected.contains_key(size));
        assert_eq!(found, expected, "{name}");
    }
    Ok(())
}
