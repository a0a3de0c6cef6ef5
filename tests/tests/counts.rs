//! Exactness: what heaptrace counts of a fixture is what the fixture counted itself, to the
//! allocation and to the byte.

use anyhow::{Result, ensure};
use heaptrace_tests::{
    Fixture, HeapUsage, Heaptrace, Mode, Recording, Totals, c, c_library, cpp, rust,
};

/// What the dynamic loader and the C++ runtime allocate in a process of a fixture, by themselves.
fn valgrind_baseline(fixture: &Fixture) -> Result<HeapUsage> {
    HeapUsage::of(&[&fixture.path])
}

/// Traces a fixture that allocates nothing beside its truth: the sites of its truth, the process and
/// the run must all agree with it.
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
        live_allocations: totals.live_allocations,
        live_bytes: totals.live_bytes,
    };
    assert_eq!(seen, usage);
    Ok(())
}

/// Check that a program that allocates nothing is reported to allocate nothing: neither heaptrace's
/// own work before `exec` nor the loader's is in the count.
#[test]
fn nothing_is_nothing() -> Result<()> {
    let fixture = c("empty")?;
    let recording = exactly(&fixture)?;
    assert_eq!(recording.report.totals.allocations, 0);
    agrees_with_valgrind(&recording.report.totals, &fixture, &[])
}

/// Check that each hooked function counts its calls and requested bytes, once each, under the
/// caller's own name.
#[test]
fn every_hook_counts() -> Result<()> {
    let recording = exactly(&c("hooks")?)?;
    for (function, (calls, bytes)) in &recording.truth("main")?.hooks {
        let totals = recording.report.within(function);
        assert!(*calls > 0, "the fixture never calls {function}");
        assert_eq!(totals.allocations, *calls, "{function}");
        assert_eq!(totals.allocated_bytes, *bytes, "{function}");
    }
    Ok(())
}

/// Check that valgrind counts the same for the hooked functions that it knows.
#[test]
fn hooks_agree_with_valgrind() -> Result<()> {
    let fixture = c("hooks")?;
    let recording =
        Heaptrace::tracing()?.record_all(&[fixture.path.as_os_str(), "no-pvalloc".as_ref()])?;
    agrees_with_valgrind(&recording.report.totals, &fixture, &["no-pvalloc"])
}

/// Check that a stack begins with the caller of the allocator function, goes on to `main`, and
/// carries source file and line.
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

/// Check that calls that fail are counted as failed and as nothing else, and leave no call pending.
#[test]
fn failed_calls_allocate_nothing() -> Result<()> {
    exactly(&c("failing")?)?;
    Ok(())
}

/// Check that realloc counts right where it moves, shrinks, fails, frees, allocates and remaps.
#[test]
fn realloc_in_all_its_ways() -> Result<()> {
    exactly(&c("reallocs")?)?;
    Ok(())
}

/// Check that calls from within libc and from callbacks count once each, also where the program has
/// a malloc of its own around libc's.
#[test]
fn nested_calls_count_once() -> Result<()> {
    let fixture = c("nested")?;
    let recording = Heaptrace::tracing()?.record_all(&[&fixture])?;
    let truth = recording.truth("main")?;
    truth.matches(&recording.report.truth(None))?;
    assert!(recording.report.totals.allocations > truth.allocations);
    agrees_with_valgrind(&recording.report.totals, &fixture, &[])
}

/// Check that eight threads that free each other's blocks, beside threads that come and go, are
/// counted exactly.
#[test]
fn threads_free_each_others_blocks() -> Result<()> {
    let recording = Heaptrace::tracing()?.record_all(&[c("threads")?])?;
    let truth = recording.truth("main")?;
    truth.matches(&recording.report.truth(Some(truth.pid)))?;
    // A thread that ends passes what is in glibc's cache for it through `free` once more, blocks that
    // were freed long ago, and the cache itself: the allocator's own affair, and no untracked free.
    assert_eq!(recording.report.quality.untracked_frees, 0);
    // The blocks beside the truth are the threads' own.
    assert!(recording.report.totals.allocations > truth.allocations);
    Ok(())
}

/// Check that a call left by longjmp is forgotten: what follows counts, deeper and shallower.
#[test]
fn longjmp_leaves_a_call_behind() -> Result<()> {
    exactly(&c("longjmp")?)?;
    Ok(())
}

/// Check that calls on the stacks of coroutines are told apart, also where one of them left a call.
#[test]
fn coroutines_take_turns() -> Result<()> {
    exactly(&c("coroutines")?)?;
    Ok(())
}

/// Check that a recursion deeper than every limit loses no allocation, only frames, and says so.
#[test]
fn deep_recursion_is_truncated() -> Result<()> {
    let recording = exactly(&c("deep")?)?;
    let quality = &recording.report.quality;
    assert!(quality.stacks_truncated > 0, "{quality:?}");
    Ok(())
}

/// Check that a library's constructor, which runs before `main`, is counted.
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

/// Check that C++ exceptions around allocator frames leave the program unharmed and the counts
/// exact: operator new that fails, handlers that throw or make room, throws out of callbacks.
#[test]
fn exceptions_around_allocator_frames() -> Result<()> {
    let recording = Heaptrace::tracing()?.record_all(&[cpp("exceptions")?])?;
    // The role is "wrong" where an exception got lost.
    let truth = recording.truth("main")?;
    truth.matches(&recording.report.truth(Some(truth.pid)))?;
    assert_eq!(recording.report.quality.untracked_frees, 0);
    // Three of the four ways to ask for too much reach malloc once, the fourth twice.
    assert_eq!(recording.report.quality.failed_allocations, 40 * 5);
    Ok(())
}

/// Check that Rust's collections, aligned and zeroed blocks, threads and caught panics are counted
/// exactly.
#[test]
fn rust_collections() -> Result<()> {
    let recording = Heaptrace::tracing()?.record_all(&[rust("collections")?])?;
    let truth = recording.truth("main")?;
    let report = &recording.report;
    truth.matches(&report.truth(Some(truth.pid)))?;
    assert_eq!(report.quality.failed_allocations, truth.failed);
    assert!(report.totals.allocations > truth.allocations);
    assert_eq!(report.quality.untracked_frees, 0);
    Ok(())
}

/// Check that the C++ runtime's emergency pool, allocated before `main`, is in the process's totals.
#[test]
fn the_runtimes_own_pool_counts() -> Result<()> {
    let fixture = cpp("pool")?;
    let usage = valgrind_baseline(&fixture)?;
    ensure!(usage.allocations > 0, "the runtime allocates nothing here");
    let recording = Heaptrace::tracing()?.record_all(&[&fixture])?;
    agrees_with_valgrind(&recording.report.totals, &fixture, &[])
}

/// Check that a report says who was traced, how, and which functions of which allocator are hooked.
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
