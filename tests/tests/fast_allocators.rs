//! Tests of the fast path with each allocator and each of its functions: estimates are compared with the fixtures' own counts.
//!
//! Each fixture begins when it was moved, so nearly all of its calls are decided by the fast path's code.

use std::ffi::OsStr;

use anyhow::{Result, ensure};
use heaptrace_tests::{
    ALLOCATORS, Fixture, Heaptrace, Recording, STATIC_JEMALLOC, agree, c_linked, c_moved,
    cpp_moved, record_moved,
};

/// Enough samples for small errors, and few enough that most calls pass.
const SAMPLE: [&str; 3] = ["--fast", "--sample", "64KiB"];

/// Records a fixture that waits until it was moved, with this library preloaded.
fn record(fixture: &Fixture, library: Option<&str>, arguments: &[&str]) -> Result<Recording> {
    record_moved(&SAMPLE, fixture, library, arguments)
}

/// Fails unless the estimates of the fixture's own calls agree with its counts, and the allocator is of this kind.
fn agrees_with_itself(recording: &Recording, kind: &str) -> Result<()> {
    recording.has_allocator(kind)?;
    // The role is "wrong" if an exception got lost.
    let truth = recording.truth("main")?;
    agree(truth, &recording.report.truth(Some(truth.pid)))
}

/// Check that blocks that other threads free, while threads start and end, are counted right with every allocator.
#[test]
fn blocks_that_other_threads_free_are_counted() -> Result<()> {
    let fixture = c_moved("threads", "threads-moved", "cc", &[])?;
    for (library, kind) in ALLOCATORS {
        agrees_with_itself(&record(&fixture, library, &["3000"])?, kind)?;
    }
    Ok(())
}

/// Check that C++'s operators are counted right with every allocator, and that the program still catches the
/// `std::bad_alloc` that they throw. (Debian's mimalloc aborts when it should throw.)
#[test]
fn operators_are_counted() -> Result<()> {
    let fixture = cpp_moved("operators", "operators-moved", "c++", &[])?;
    for (library, kind) in ALLOCATORS {
        let refusals = if kind == "mimalloc" {
            "no-refusals"
        } else {
            ""
        };
        agrees_with_itself(&record(&fixture, library, &[refusals, "400"])?, kind)?;
    }
    let options = ["-Wl,--no-as-needed", "-ltcmalloc"];
    let linked = cpp_moved("operators", "operators-moved-tcmalloc", "c++", &options)?;
    agrees_with_itself(&record(&linked, None, &["", "400"])?, "tcmalloc")
}

/// Check that each function of the malloc family is counted right by itself, with every allocator, preloaded and linked.
#[test]
fn each_function_is_counted() -> Result<()> {
    let fixture = c_moved("busy", "busy-moved", "cc", &[])?;
    let linked = c_moved("busy", "busy-moved-jemalloc", "cc", &["-ljemalloc"])?;
    let recordings = ALLOCATORS
        .into_iter()
        .map(|(library, kind)| Ok((record(&fixture, library, &["400"])?, kind)))
        .chain([record(&linked, None, &["400"]).map(|it| (it, "jemalloc"))]);
    for recording in recordings {
        let (recording, kind) = recording?;
        agrees_with_itself(&recording, kind)?;
        let hooks = &recording.truth("main")?.hooks;
        let called = hooks.iter().filter(|(_, (calls, _))| *calls > 0);
        ensure!(called.clone().count() == 8, "{hooks:?}");
        for (function, (calls, bytes)) in called {
            let totals = recording.report.within(function);
            let off = totals.allocations.abs_diff(*calls);
            let off_bytes = totals.allocated_bytes.abs_diff(*bytes);
            ensure!(
                off <= 6 * totals.allocations_error
                    && off_bytes <= 6 * totals.allocated_bytes_error,
                "{function}: {totals:?}, in truth {calls} of {bytes} bytes"
            );
        }
    }
    Ok(())
}

/// Check that a function that passes, and calls another probed one, is counted once with every allocator.
#[test]
fn calls_that_pass_are_counted_once() -> Result<()> {
    let fixture = c_moved("aligned", "aligned-moved", "cc", &[])?;
    for (library, kind) in ALLOCATORS {
        agrees_with_itself(&record(&fixture, library, &["400000"])?, kind)?;
    }
    Ok(())
}

/// Check that a program with an allocator of its own, whose calls need no slot, is counted right, whether it is moved for
/// the sake of its libraries or not.
#[test]
fn an_allocator_in_the_program_is_counted() -> Result<()> {
    let fixture = c_linked("busy", "busy-jemalloc-static", "cc", &STATIC_JEMALLOC)?;
    let command = [fixture.as_ref(), OsStr::new("1000")];
    let recording = Heaptrace::tracing()?.record(&SAMPLE, &command)?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    println!("moved: {:?}", recording.report.moved());
    recording.agrees_with("main")
}
