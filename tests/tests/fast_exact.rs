//! Tests of runs that record every call in processes on the fast path: all numbers are exact.
//!
//! Each fixture begins when it was moved, so nearly all of its calls are made by the fast path's code.

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{
    ALLOCATORS, Child, Fixture, Heaptrace, MINUTE, Recording, all_match, c, c_moved, code_mappings,
    cpp_moved, ready_pid, record_moved, truths, until,
};

const EXACT: [&str; 2] = ["--fast", "--exact"];

/// Records a fixture that waits until it was moved, with this library preloaded.
fn record(fixture: &Fixture, library: Option<&str>, arguments: &[&str]) -> Result<Recording> {
    record_moved(&EXACT, fixture, library, arguments)
}

/// Fails unless the numbers of the fixture's own calls are exactly its counts, and the allocator is of this kind.
fn matches_itself(recording: &Recording, kind: &str) -> Result<()> {
    recording.has_allocator(kind)?;
    let truth = recording.truth("main")?;
    truth.matches(&recording.report.truth(Some(truth.pid)))
}

/// Check that each function of the malloc family is counted exactly, with every allocator, and that stacks are whole with glibc.
#[test]
fn each_function_is_exact() -> Result<()> {
    for name in ["busy", "hooks", "aligned"] {
        let fixture = c_moved(name, &format!("{name}-moved"), "cc", &[])?;
        let arguments: &[&str] = match name {
            "busy" => &["200"],
            "aligned" => &["5000"],
            _ => &["no-pvalloc"],
        };
        for (library, kind) in ALLOCATORS {
            let recording = record(&fixture, library, arguments)?;
            matches_itself(&recording, kind)
                .with_context(|| format!("{name}, {kind}: {}", recording.ended.stderr))?;
            for (function, (calls, bytes)) in &recording.truth("main")?.hooks {
                let totals = recording.report.within(function);
                let seen = (totals.allocations, totals.allocated_bytes);
                ensure!(
                    seen == (*calls, *bytes),
                    "{function}: {seen:?} for {calls}, {bytes}"
                );
            }
            let quality = &recording.report.quality;
            let stacks = quality.stacks_complete + quality.stacks_broken + quality.stacks_truncated;
            if kind == "glibc" {
                assert!(quality.stacks_complete * 100 >= stacks * 99, "{quality:?}");
            }
        }
    }
    Ok(())
}

/// Check that blocks that other threads free, while threads start and end, are counted exactly.
#[test]
fn threads_are_exact() -> Result<()> {
    let fixture = c_moved("threads", "threads-moved", "cc", &[])?;
    for (library, kind) in ALLOCATORS {
        matches_itself(&record(&fixture, library, &["200"])?, kind)?;
    }
    Ok(())
}

/// Check that C++'s operators are counted exactly, and that the program still catches the `std::bad_alloc` that they throw.
/// (Debian's mimalloc aborts when it should throw. Those of the C++ library round sizes up before they call `aligned_alloc`.)
#[test]
fn operators_are_exact() -> Result<()> {
    let fixture = cpp_moved("operators", "operators-moved", "c++", &[])?;
    for (library, kind) in ALLOCATORS.into_iter().filter(|(_, kind)| *kind != "glibc") {
        let refusals = if kind == "mimalloc" {
            "no-refusals"
        } else {
            ""
        };
        matches_itself(&record(&fixture, library, &[refusals, "20"])?, kind)?;
    }
    Ok(())
}

/// Check that a process that forbids itself nearly all system calls after it was moved is unharmed and counted exactly: on newer
/// kernels the probes in the code enter the kernel by a system call, which no filter may see.
#[test]
fn a_strict_process_is_unharmed() -> Result<()> {
    let fixture = c_moved("sealed", "sealed-moved", "cc", &[])?;
    for argument in ["strict", "filter"] {
        matches_itself(&record(&fixture, None, &[argument])?, "glibc")?;
    }
    Ok(())
}

/// Starts the fixture, and a tracer of it with its children, and waits until the target is moved.
fn start_moved(here: &Heaptrace, arguments: &[&str]) -> Result<(Child, Child)> {
    let mut target = Child::spawn(c("busy")?.command().args(arguments))?;
    let pid = ready_pid(&target.line()?)?;
    let pid_text = pid.to_string();
    let options = [&EXACT[..], &["-v", "--pid", &pid_text]].concat();
    let tracer = here.start_record(&options)?;
    until("the target is moved", MINUTE, || {
        Ok(tracer.stderr().contains("is on the fast path from now on"))
    })?;
    Ok((target, tracer))
}

/// Check that forked children of a moved process are unharmed and counted exactly. The kernel makes the probes in the code calls, of
/// something that a child does not have.
#[test]
fn children_are_exact() -> Result<()> {
    let fixture = c_moved("forks", "forks-moved", "cc", &[])?;
    let recording = record(&fixture, None, &[])?;
    assert_eq!(recording.truths.len(), 6);
    all_match(&recording.truths, &recording.report)
}

/// Check that a process is moved and counted exactly, however often it has started another program before. (Once, one that did so while
/// the code was made ready for it was never moved.)
#[test]
fn a_started_program_is_exact() -> Result<()> {
    let fixture = c_moved("execs", "execs-moved", "cc", &[])?;
    let here = Heaptrace::tracing()?;
    let recording = here.record(&EXACT, &[fixture.as_ref(), "20".as_ref()])?;
    assert_eq!(recording.ended.code(), 0, "{}", recording.ended.stderr);
    recording.report.check_nothing_lost()?;
    ensure!(recording.report.moved().0 > 0);
    let counted = recording.report.within("truth_malloc");
    assert_eq!(
        (counted.allocations, counted.allocated_bytes),
        (1000, 100_000)
    );
    Ok(())
}

/// Check that a target whose tracer is killed together with everything that belongs to it goes on unharmed, as does one
/// whose tracer alone is killed, and that another run then counts exactly what the target does from then on.
#[test]
fn a_killed_tracer_harms_nothing() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let (mut target, tracer) = start_moved(&here, &[])?;
    tracer.signal(libc::SIGKILL)?;
    let _ = tracer.wait();
    let pid = target.pid();
    assert_eq!(code_mappings(pid)?, 1);
    let again = Heaptrace::tracing()?;
    let pid_text = pid.to_string();
    let mut tracer = again.start_record(&[&EXACT[..], &["--pid", &pid_text]].concat())?;
    again.wait_attached(&mut tracer, pid)?;
    target.go()?;
    let ended = target.wait()?.success()?;
    let truth = truths(&ended.stdout)?.pop().context("no truth")?;
    let recording = again.finish(tracer)?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    recording.report.check_nothing_lost()?;
    let seen = recording.report.truth(Some(pid));
    ensure!(seen.allocations > 0 && seen.allocations < truth.allocations);
    Ok(())
}
