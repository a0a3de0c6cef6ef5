//! Tests of the fixtures themselves, untraced: their own counts must be those of valgrind.
//!
//! If one fails, the end-to-end tests that use the fixture prove nothing.

use std::ffi::OsStr;

use anyhow::Result;
use heaptrace_tests::{Fixture, HeapUsage, bounds, c, c_library, cpp, run, rust, truths};

/// Fails unless valgrind's counts are the sum of the processes' own counts.
fn counts_everything(fixture: &Fixture, arguments: &[&str]) -> Result<()> {
    let mut command = vec![fixture.path.as_os_str()];
    command.extend(arguments.iter().map(OsStr::new));
    let usage = HeapUsage::of(&command)?;
    let stdout = run(fixture.command().args(arguments))?.success()?.stdout;
    let truths = truths(&stdout)?;
    assert!(!truths.is_empty(), "no truth: {stdout}");
    let reported = HeapUsage {
        allocations: truths.iter().map(|truth| truth.allocations).sum(),
        frees: truths.iter().map(|truth| truth.frees).sum(),
        allocated_bytes: truths.iter().map(|truth| truth.allocated_bytes).sum(),
        live_allocations: truths.iter().map(|truth| truth.live_allocations).sum(),
        live_bytes: truths.iter().map(|truth| truth.live_bytes).sum(),
    };
    assert_eq!(reported, usage);
    Ok(())
}

/// Check that these fixtures count all of their allocations.
#[test]
fn fixtures_count_everything() -> Result<()> {
    counts_everything(&c("empty")?, &[])?;
    counts_everything(&c("hooks")?, &["no-pvalloc"])?;
    counts_everything(&c("deep")?, &[])?;
    counts_everything(&c("flood")?, &[])?;
    counts_everything(&c("many_sites")?, &[])?;
    counts_everything(&c_library("early", "early_lib")?, &[])
}

/// Check that fixtures with other allocations as well count fewer than valgrind does.
#[test]
fn other_fixtures_count_less() -> Result<()> {
    for fixture in [c("nested")?, rust("collections")?] {
        let usage = HeapUsage::of(&[&fixture.path])?;
        let reported = truths(&run(&mut fixture.command())?.success()?.stdout)?.remove(0);
        assert!(
            reported.allocations < usage.allocations,
            "{}",
            fixture.path.display()
        );
        assert!(reported.allocated_bytes < usage.allocated_bytes);
        assert!(reported.live_bytes <= usage.live_bytes);
    }
    Ok(())
}

/// Check that the counts of fixtures that valgrind can't run are consistent.
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
