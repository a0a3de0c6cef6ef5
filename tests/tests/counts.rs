//! Tests that heaptrace's counts are exactly those that a fixture keeps of its own calls.

use anyhow::{Result, ensure};
use heaptrace_tests::{
    Fixture, HeapUsage, Heaptrace, Mode, Recording, Totals, c, c_library, cpp, rust,
};

/// The allocations of the dynamic loader and the C++ runtime themselves, in a process of a fixture.
fn valgrind_baseline(fixture: &Fixture) -> Result<HeapUsage> {
    HeapUsage::of(&[&fixture.path])
}

/// Traces a fixture that makes no other allocations than those it counts. Its `truth_` sites, its process and the run
/// must all have its counts.
fn exactly(fixture: &Fixture) -> Result<Recording> {
    let recording = Heaptrace::tracing()?.record_all(&[fixture])?;
    let truth = recording.truth("main")?;
    let report = &recording.report;
    truth.matches(&report.totals)?;
    // A process that allocates nothing need not be in the report.
    if truth.allocations > 0 {
        truth.matches(&report.process(truth.pid)?.totals)?;
    }
    truth.matches(&report.truth(Some(truth.pid)))?;
    assert_eq!(report.totals.peak_live_bytes, truth.peak_live_bytes);
    assert_eq!(report.quality.failed_allocations, truth.failed);
    assert_eq!(report.quality.untracked_frees, truth.untracked);
    Ok(recording)
}

fn agrees_with_valgrind(totals: &Totals, fixture: &Fixture, arguments: &[&str]) -> Result<()> {
    let mut command = vec![fixture.path.as_os_str()];
    command.extend(arguments.iter().map(std::ffi::OsStr::new));
    let usage = HeapUsage::of(&command)?;
    let seen = HeapUsage {
        allocations: totals.allocations,
        frees: totals.frees,
        allocated_bytes: totals.allocated_bytes,
        live_allocations: totals.unfreed_allocations(),
        live_bytes: totals.unfreed_bytes(),
    };
    assert_eq!(seen, usage);
    Ok(())
}

/// Check that a program without allocations is reported with none: allocations of heaptrace before `exec`, and of the
/// loader, don't count.
#[test]
fn no_allocations_are_reported_as_none() -> Result<()> {
    let fixture = c("empty")?;
    let recording = exactly(&fixture)?;
    assert_eq!(recording.report.totals.allocations, 0);
    agrees_with_valgrind(&recording.report.totals, &fixture, &[])
}

/// Check that the calls and bytes of each hooked function count once, under the caller's name.
#[test]
fn every_hook_counts() -> Result<()> {
    let recording = exactly(&c("hooks")?)?;
    let hooks = &recording.truth("main")?.hooks;
    ensure!(!hooks.is_empty(), "the fixture reports no functions");
    for (function, (calls, bytes)) in hooks {
        let totals = recording.report.within(function);
        assert!(*calls > 0, "the fixture never calls {function}");
        assert_eq!(totals.allocations, *calls, "{function}");
        assert_eq!(totals.allocated_bytes, *bytes, "{function}");
    }
    Ok(())
}

/// Check that valgrind has the same counts for the hooked functions that it knows.
#[test]
fn hooks_agree_with_valgrind() -> Result<()> {
    let fixture = c("hooks")?;
    let recording =
        Heaptrace::tracing()?.record_all(&[fixture.path.as_os_str(), "no-pvalloc".as_ref()])?;
    agrees_with_valgrind(&recording.report.totals, &fixture, &["no-pvalloc"])
}

/// Check that a stack begins with the caller of the allocator function, reaches `main`, and has source files and lines.
#[test]
fn stacks_begin_at_the_caller() -> Result<()> {
    let recording = Heaptrace::tracing()?.record_all(&[c("hooks")?])?;
    ensure!(!recording.report.sites.is_empty(), "no sites");
    for site in &recording.report.sites {
        let first = site.stack.first();
        let starts_right = first.is_some_and(|frame| {
            let name = frame.function.as_deref().unwrap_or("");
            let file = frame.file.as_deref().unwrap_or("");
            name.starts_with("truth_") && file.ends_with("truth.h") && frame.line > Some(0)
        });
        assert!(starts_right, "{:?}", site.stack);
        assert!(site.has("main"), "{:?}", site.stack);
    }
    Ok(())
}

/// Check that failed calls count as failed, and as nothing else, and that no call stays pending.
#[test]
fn failed_calls_allocate_nothing() -> Result<()> {
    exactly(&c("failing")?)?;
    Ok(())
}

/// Check that `realloc` is counted exactly when it moves, shrinks, fails, frees, allocates and remaps.
#[test]
fn every_kind_of_realloc_counts() -> Result<()> {
    exactly(&c("reallocs")?)?;
    Ok(())
}

/// Check that calls from inside of libc and from callbacks count once each, even if the program has a `malloc` of its
/// own that calls libc's.
#[test]
fn nested_calls_count_once() -> Result<()> {
    let fixture = c("nested")?;
    let recording = Heaptrace::tracing()?.record_all(&[&fixture])?;
    let truth = recording.truth("main")?;
    truth.matches(&recording.report.truth(None))?;
    assert!(recording.report.totals.allocations > truth.allocations);
    agrees_with_valgrind(&recording.report.totals, &fixture, &[])
}

/// Check that eight threads that free each other's blocks are counted exactly, while other threads start and end.
#[test]
fn threads_free_each_others_blocks() -> Result<()> {
    let recording = Heaptrace::tracing()?.record_all(&[c("threads")?])?;
    let truth = recording.truth("main")?;
    truth.matches(&recording.report.truth(Some(truth.pid)))?;
    // When a thread ends, glibc passes the blocks in the thread's cache, which were freed long ago, and the cache itself
    // to `free` once more. These calls are the allocator's own, and no untracked frees.
    assert_eq!(recording.report.quality.untracked_frees, 0);
    // The other blocks are those of the threads themselves.
    assert!(recording.report.totals.allocations > truth.allocations);
    Ok(())
}

/// Check that a call left by `longjmp` doesn't disturb the counts of later calls, deeper and shallower ones.
#[test]
fn calls_left_by_longjmp_are_forgotten() -> Result<()> {
    exactly(&c("longjmp")?)?;
    Ok(())
}

/// Check that calls on the stacks of several coroutines are distinguished, even if one of them left a call.
#[test]
fn coroutines_are_distinguished() -> Result<()> {
    exactly(&c("coroutines")?)?;
    Ok(())
}

/// Check that a recursion deeper than the limit of frames loses frames but no allocation, and is reported.
#[test]
fn deep_recursion_is_truncated() -> Result<()> {
    let recording = exactly(&c("deep")?)?;
    let quality = &recording.report.quality;
    assert!(quality.stacks_truncated > 0, "{quality:?}");
    Ok(())
}

/// Check that allocations of a library's constructor, which runs before `main`, are counted.
#[test]
fn constructors_count() -> Result<()> {
    let fixture = c_library("early", "early_lib")?;
    let recording = Heaptrace::tracing()?.record_all(&[&fixture])?;
    let (early, main) = (recording.truth("early")?, recording.truth("main")?);
    let report = &recording.report;
    let mut beside = Totals::default();
    beside += &report.within("allocate_early");
    early.matches(&beside)?;
    main.matches_beside(&report.totals, &beside)?;
    agrees_with_valgrind(&report.totals, &fixture, &[])
}

/// Check that blocks freed before their thread allocates again are counted as temporary.
#[test]
fn temporary_blocks_are_counted() -> Result<()> {
    let recording = exactly(&c("flood")?)?;
    let truth = recording.truth("main")?;
    assert!(truth.temporary > 0);
    let totals = &recording.report.totals;
    assert_eq!(totals.temporary_allocations, truth.temporary);
    Ok(())
}

/// Check that C++ exceptions around allocator frames don't harm the program or the counts: from a failed `operator new`,
/// from handlers that throw or free memory, and from callbacks.
#[test]
fn exceptions_around_allocator_frames_are_harmless() -> Result<()> {
    let recording = Heaptrace::tracing()?.record_all(&[cpp("exceptions")?])?;
    // The role is "wrong" if an exception got lost.
    let truth = recording.truth("main")?;
    truth.matches(&recording.report.truth(Some(truth.pid)))?;
    assert_eq!(recording.report.quality.untracked_frees, 0);
    // Three of the four ways to request too much call malloc once, and the fourth calls it twice.
    assert_eq!(recording.report.quality.failed_allocations, 40 * 5);
    Ok(())
}

/// Check that Rust's collections, aligned and zeroed blocks, threads and caught panics are counted exactly.
#[test]
fn rust_collections_are_counted() -> Result<()> {
    let recording = Heaptrace::tracing()?.record_all(&[rust("collections")?])?;
    let truth = recording.truth("main")?;
    let report = &recording.report;
    truth.matches(&report.truth(Some(truth.pid)))?;
    assert_eq!(report.quality.failed_allocations, truth.failed);
    assert!(report.totals.allocations > truth.allocations);
    assert_eq!(report.quality.untracked_frees, 0);
    Ok(())
}

/// Check that the C++ runtime's emergency pool, which is allocated before `main`, counts.
#[test]
fn the_runtimes_own_pool_counts() -> Result<()> {
    let fixture = cpp("pool")?;
    let usage = valgrind_baseline(&fixture)?;
    ensure!(usage.allocations > 0, "the runtime allocates nothing here");
    let recording = Heaptrace::tracing()?.record_all(&[&fixture])?;
    agrees_with_valgrind(&recording.report.totals, &fixture, &[])
}

/// Check that a report names the process, the mode of tracing, and the hooked functions of the allocator.
#[test]
fn a_report_says_what_was_traced() -> Result<()> {
    let recording = Heaptrace::tracing()?.record_all(&[c("hooks")?])?;
    let report = &recording.report;
    assert_eq!(report.mode, Mode::Exact);
    assert_eq!(report.version, env!("CARGO_PKG_VERSION"));
    assert!(report.duration_ns > 0);
    let process = report.process(recording.truth("main")?.pid)?;
    assert_eq!(process.command, "hooks");
    assert!(process.ended);
    let [allocator] = process.allocators.as_slice() else {
        anyhow::bail!("not one allocator: {:?}", process.allocators);
    };
    assert_eq!(allocator.kind, "glibc");
    assert!(allocator.path.ends_with("/libc.so.6"), "{allocator:?}");
    for hook in [
        "malloc",
        "calloc",
        "realloc",
        "free",
        "posix_memalign",
        "aligned_alloc",
        "memalign",
        "valloc",
        "pvalloc",
    ] {
        assert!(
            allocator.hooks.iter().any(|name| name == hook),
            "{hook} is not in {allocator:?}"
        );
    }
    Ok(())
}
