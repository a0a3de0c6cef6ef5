//! The fixtures themselves, untraced: what they say of their own allocations is what valgrind sees.
//!
//! Where this fails, a fixture lies, and no end-to-end test that relies on it means anything.

use std::ffi::OsStr;

use anyhow::Result;
use heaptrace_tests::{Fixture, HeapUsage, bounds, c, c_library, cpp, run, rust, truths};

/// Fails unless the processes' truth, in sum, is all that valgrind sees, but for the given number
/// of blocks beside it.
fn is_the_whole_truth(fixture: &Fixture, arguments: &[&str]) -> Result<()> {
    let mut command = vec![fixture.path.as_os_str()];
    command.extend(arguments.iter().map(OsStr::new));
    let usage = HeapUsage::of(&command)?;
    let stdout = run(fixture.command().args(arguments))?.success()?.stdout;
    let truths = truths(&stdout)?;
    assert!(!truths.is_empty(), "no truth: {stdout}");
    let told = HeapUsage {
        allocations: truths.iter().map(|truth| truth.allocations).sum(),
        frees: truths.iter().map(|truth| truth.frees).sum(),
        allocated_bytes: truths.iter().map(|truth| truth.allocated_bytes).sum(),
        live_allocations: truths.iter().map(|truth| truth.live_allocations).sum(),
        live_bytes: truths.iter().map(|truth| truth.live_bytes).sum(),
    };
    assert_eq!(told, usage);
    Ok(())
}

/// Check that the fixtures that claim to allocate nothing beside their truth do not.
#[test]
fn quiet_fixtures_tell_the_whole_truth() -> Result<()> {
    is_the_whole_truth(&c("empty")?, &[])?;
    is_the_whole_truth(&c("hooks")?, &["no-pvalloc"])?;
    is_the_whole_truth(&c("deep")?, &[])?;
    is_the_whole_truth(&c("flood")?, &[])?;
    is_the_whole_truth(&c("many_sites")?, &[])?;
    is_the_whole_truth(&c_library("early", "early_lib")?, &[])
}

/// Check that what fixtures allocate beside their truth is more, never less.
#[test]
fn other_fixtures_tell_no_more_than_the_truth() -> Result<()> {
    for fixture in [c("nested")?, rust("collections")?] {
        let usage = HeapUsage::of(&[&fixture.path])?;
        let told = truths(&run(&mut fixture.command())?.success()?.stdout)?.remove(0);
        assert!(
            told.allocations < usage.allocations,
            "{}",
            fixture.path.display()
        );
        assert!(told.allocated_bytes < usage.allocated_bytes);
        assert!(told.live_bytes <= usage.live_bytes);
    }
    Ok(())
}

/// Check that the fixtures that valgrind can't run are at least sound by themselves.
#[test]
fn all_fixtures_run_untraced() -> Result<()> {
    for (fixture, roles) in [
        (c("failing")?, 1),
        (c("reallocs")?, 1),
        (c("longjmp")?, 1),
        (c("coroutines")?, 1),
        (c("threads")?, 1),
        (c("leaderless")?, 1),
        (c("forks")?, 6),
        (c("spawns")?, 8),
        (c("relatives")?, 211),
        (cpp("exceptions")?, 1),
        (cpp("pool")?, 1),
    ] {
        let ended = run(&mut fixture.command())?.success()?;
        let truths = truths(&ended.stdout)?;
        assert_eq!(truths.len(), roles, "{}", fixture.path.display());
        for truth in truths {
            assert_ne!(truth.role, "wrong", "{}", fixture.path.display());
            assert_eq!(truth.allocations - truth.frees, truth.live_allocations);
            assert_eq!(truth.allocated_bytes - truth.freed_bytes, truth.live_bytes);
        }
    }
    for how in ["exit", "quick", "kill", "abort", "exec"] {
        let ended = run(c("endings")?.command().arg(how))?.success()?;
        let bounds = bounds(&ended.stdout)?;
        assert!(bounds.begun - bounds.ended <= 4, "{how}: {bounds:?}");
        assert!(
            bounds.frees_begun - bounds.frees_ended <= 4,
            "{how}: {bounds:?}"
        );
    }
    Ok(())
}
