//! Tests of libraries that wrap an allocator: of two functions that call each other, the outermost counts, wherever they lie.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{Fixture, Frame, Heaptrace, Recording, c, c_preload, cpp};

const JEMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";
const TCMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4";
const MIMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libmimalloc.so.2.0";

/// glibc's own wrapper, which puts a header before each block. It leaves the aligned functions to the next allocator.
const MEMUSAGE: &str = "/usr/lib/x86_64-linux-gnu/libmemusage.so";

/// A wrapper with a header before each block.
fn with_header() -> Result<String> {
    path(&c_preload("wrapper", "libwrapper.so", &[])?)
}

/// A wrapper that passes all on to the next allocator.
fn without_header() -> Result<String> {
    path(&c_preload(
        "wrapper",
        "libwrapper-thin.so",
        &["-DNO_HEADER"],
    )?)
}

/// A wrapper that passes all on to glibc, by names of glibc's own.
fn around_glibc() -> Result<String> {
    path(&c_preload("wrapper", "libwrapper-glibc.so", &["-DPLAIN"])?)
}

/// The same, whose functions end in tail calls where they can.
fn with_tail_calls() -> Result<String> {
    let options = ["-DPLAIN", "-O2", "-foptimize-sibling-calls"];
    path(&c_preload("wrapper", "libwrapper-tail.so", &options)?)
}

fn path(fixture: &Fixture) -> Result<String> {
    let path = fixture.path.to_str().context("a path that is no text")?;
    Ok(path.to_owned())
}

/// Every wrapper, and some above each other, as a list of libraries to preload.
fn all() -> Result<Vec<String>> {
    ensure!(
        Path::new(MEMUSAGE).exists(),
        "{MEMUSAGE} of libc6 is not there"
    );
    let (header, thin) = (with_header()?, without_header()?);
    Ok(vec![
        MEMUSAGE.to_owned(),
        around_glibc()?,
        with_tail_calls()?,
        header.clone(),
        format!("{thin}:{JEMALLOC}"),
        format!("{header}:{MIMALLOC}"),
        format!("{header}:{thin}:{TCMALLOC}"),
        format!("{MEMUSAGE}:{header}:{thin}:{JEMALLOC}"),
    ])
}

/// Traces a fixture with preloaded libraries.
fn record(
    libraries: &str,
    fixture: &Fixture,
    options: &[&str],
    arguments: &[&str],
) -> Result<Recording> {
    let preload = format!("LD_PRELOAD={libraries}");
    let mut command = vec!["env", &preload];
    let program = path(fixture)?;
    command.push(&program);
    command.extend(arguments);
    let recording = Heaptrace::tracing()?.record(options, &command)?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    recording.report.check_nothing_lost()?;
    Ok(recording)
}

/// Traces a fixture with preloaded libraries. Its counts must be exact, and every stack must be complete and begin at
/// the wrapper's caller.
fn exactly(libraries: &str, fixture: &Fixture, arguments: &[&str]) -> Result<()> {
    let recording = record(libraries, fixture, &[], arguments)?;
    let (report, truth) = (&recording.report, recording.truth("main")?);
    truth.matches(&report.truth(Some(truth.pid)))?;
    ensure!(
        report.quality.untracked_frees == truth.untracked,
        "{} untracked frees",
        report.quality.untracked_frees
    );
    let is_truth = |frame: &Frame| {
        let name = frame.function.as_deref();
        name.is_some_and(|name| name.starts_with("truth_"))
    };
    for site in &report.sites {
        let truths = site.stack.iter().filter(|frame| is_truth(frame)).count();
        ensure!(
            truths == 0 || site.stack_end == "complete" && is_truth(&site.stack[0]),
            "{}: {:?}",
            site.stack_end,
            site.stack
        );
    }
    Ok(())
}

/// Check that calls through a wrapper count once each, with the requested size and the stack of the wrapper's caller,
/// and that the blocks' addresses are those that the wrapper returned.
#[test]
fn calls_through_a_wrapper_count_once() -> Result<()> {
    for libraries in all()? {
        for (fixture, arguments) in [("hooks", &["no-pvalloc"][..]), ("reallocs", &[])] {
            exactly(&libraries, &c(fixture)?, arguments)
                .with_context(|| format!("{fixture} with {libraries}"))?;
        }
    }
    Ok(())
}

/// Check that they count once in a partial run, too, in which a call that is not recorded leaves only its trampoline on
/// the stack: all calls of these sizes are recorded, and with a header, calls of other sizes make inner calls of these.
#[test]
fn calls_of_some_sizes_count_once() -> Result<()> {
    let (header, thin) = (with_header()?, without_header()?);
    for libraries in [
        MEMUSAGE.to_owned(),
        around_glibc()?,
        with_tail_calls()?,
        header.clone(),
        format!("{header}:{MIMALLOC}"),
        format!("{header}:{thin}:{TCMALLOC}"),
        format!("{MEMUSAGE}:{thin}"),
        format!("{MEMUSAGE}:{header}:{thin}:{JEMALLOC}"),
    ] {
        let options = ["--min-size", "100", "--max-size", "2KiB"];
        let recording = record(&libraries, &c("sampled")?, &options, &["100", "2048"])?;
        let (report, truth) = (&recording.report, recording.truth("main")?);
        // `env` is the first image.
        let images = report.images(truth.pid);
        let totals = images.last().context("no process")?.totals;
        truth
            .matches(&totals)
            .with_context(|| format!("sampled with {libraries}"))?;
    }
    Ok(())
}

/// Check that failed calls through a wrapper count as failed once.
#[test]
fn failed_calls_through_a_wrapper_count_once() -> Result<()> {
    for libraries in [around_glibc()?, with_header()?] {
        let recording = record(&libraries, &c("failing")?, &[], &[])?;
        let (report, truth) = (&recording.report, recording.truth("main")?);
        truth.matches(&report.truth(Some(truth.pid)))?;
        // The wrapper's `reallocarray` is probed, unlike glibc's: 20 products overflow in it.
        assert_eq!(report.quality.failed_allocations, truth.failed + 20);
    }
    Ok(())
}

/// Check that calls of a wrapper that `longjmp` left, exceptions, and threads that end don't disturb the counts.
#[test]
fn a_wrapper_may_be_left() -> Result<()> {
    for libraries in [with_header()?, around_glibc()?] {
        for fixture in [
            c("longjmp")?,
            c("coroutines")?,
            cpp("exceptions")?,
            c("threads")?,
        ] {
            let recording = record(&libraries, &fixture, &[], &[])?;
            let (report, truth) = (&recording.report, recording.truth("main")?);
            truth
                .matches(&report.truth(Some(truth.pid)))
                .with_context(|| format!("{} with {libraries}", fixture.name()))?;
            assert_eq!(report.quality.untracked_frees, 0, "{}", fixture.name());
        }
    }
    Ok(())
}
