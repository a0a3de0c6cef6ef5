//! Memory that programs map themselves: recorded where it is asked for, to the page, and never taken for
//! blocks, nor blocks for it.

use std::ffi::OsStr;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{Fixture, Heaptrace, Recording, Report, Totals, c, c_linked};

fn recorded(options: &[&str], command: &[&OsStr]) -> Result<Recording> {
    let recording = Heaptrace::tracing()?.record(options, command)?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    recording.report.check_nothing_lost()?;
    Ok(recording)
}

/// What the fixture counts of blocks.
fn blocks_of(report: &Report) -> Totals {
    let mut all = report.truth(None);
    let mapped = report.of_kind(Some("mmap"));
    for (counter, mapped) in [
        (&mut all.allocations, mapped.allocations),
        (&mut all.allocated_bytes, mapped.allocated_bytes),
        (&mut all.frees, mapped.frees),
        (&mut all.freed_bytes, mapped.freed_bytes),
        (&mut all.live_allocations, mapped.live_allocations),
        (&mut all.live_bytes, mapped.live_bytes),
    ] {
        *counter -= mapped;
    }
    all
}

/// Both truths of the fixture, each against its own sites.
fn both(fixture: &Fixture) -> Result<Recording> {
    let recording = recorded(&["--mmap"], &[fixture.as_ref()])?;
    let report = &recording.report;
    let (blocks, mapped) = (recording.truth("main")?, recording.truth("mapped")?);
    blocks.matches(&blocks_of(report))?;
    let sites = report.of_kind(Some("mmap"));
    mapped.matches(&sites)?;
    ensure!(report.mapped == Some(sites), "{:?}", report.mapped);
    // Nothing else has mapped anything, and nothing that allocates is taken for it.
    mapped.matches_beside(&report.totals, &report.of_kind(None))?;
    ensure!(
        report.quality.failed_allocations == blocks.failed + mapped.failed,
        "{:?}",
        report.quality
    );
    Ok(recording)
}

/// Check that mappings are counted to the page through every way of giving parts of them back, beside
/// blocks that malloc maps, which count as blocks alone.
#[test]
fn every_page_is_accounted_for() -> Result<()> {
    let recording = both(&c("mappings")?)?;
    let mapped = recording.truth("mapped")?;
    ensure!(mapped.live_allocations > 3, "{mapped:?}");
    let process = recording.report.process(mapped.pid)?;
    let hooks = process.allocators.iter().find(|it| it.kind == "mmap");
    let hooks = &hooks.context("no functions that map memory")?.hooks;
    for name in ["mmap", "mmap64", "munmap", "mremap"] {
        ensure!(hooks.iter().any(|hook| hook == name), "{hooks:?}");
    }
    Ok(())
}

/// Check that the same holds where the C library is built in, and on musl in both ways.
#[test]
fn other_c_libraries() -> Result<()> {
    both(&c_linked(
        "mappings",
        "mappings-static",
        "cc",
        &["-static"],
    )?)?;
    for (output, options) in [
        ("mappings-musl", &[][..]),
        ("mappings-musl-static", &["-static"]),
    ] {
        both(&c_linked("mappings", output, "musl-gcc", options)?)?;
    }
    Ok(())
}

/// Check that what another allocator maps for its blocks counts as these alone, also where it maps
/// outside of any call of its functions.
#[test]
fn other_allocators() -> Result<()> {
    let fixture = c("mappings")?;
    for library in ["libjemalloc.so.2", "libtcmalloc.so.4", "libmimalloc.so.2.0"] {
        let preload = format!("LD_PRELOAD=/usr/lib/x86_64-linux-gnu/{library}");
        let command = [OsStr::new("env"), OsStr::new(&preload), fixture.as_ref()];
        let recording = recorded(&["--mmap"], &command)?;
        let (blocks, mapped) = (recording.truth("main")?, recording.truth("mapped")?);
        blocks.matches(&blocks_of(&recording.report))?;
        mapped
            .matches(&recording.report.of_kind(Some("mmap")))
            .context(library)?;
    }
    Ok(())
}

/// Check that in a sample each mapping is recorded for certain, as what it is.
#[test]
fn a_sample_has_all_of_them() -> Result<()> {
    let fixture = c("mappings")?;
    let recording = recorded(&["--mmap", "--sample", "1MiB"], &[fixture.as_ref()])?;
    let sites = recording.report.of_kind(Some("mmap"));
    recording.truth("mapped")?.matches(&sites)?;
    assert_eq!((sites.allocations_error, sites.live_bytes_error), (0, 0));
    Ok(())
}

/// Check that nothing of it is there unless it is asked for.
#[test]
fn off_by_default() -> Result<()> {
    let recording = recorded(&[], &[c("mappings")?.as_ref()])?;
    let truth = recording.truth("main")?;
    truth.matches(&recording.report.truth(None))?;
    ensure!(recording.report.of_kind(Some("mmap")).allocations == 0);
    ensure!(recording.report.mapped.is_none());
    let process = recording.report.process(truth.pid)?;
    ensure!(
        process.allocators.iter().all(|it| it.kind != "mmap"),
        "{process:?}"
    );
    Ok(())
}

/// Check that nothing is miscounted where threads get addresses that others have just given back, before
/// these calls have returned.
#[test]
fn threads_race_for_addresses() -> Result<()> {
    let recording = recorded(&["--mmap"], &[c("mapping_flood")?.as_ref()])?;
    let truth = recording.truth("mapped")?;
    let sites = recording.report.of_kind(Some("mmap"));
    let expected = (truth.allocations, truth.live_bytes);
    assert_eq!((sites.allocations, sites.live_bytes), expected);
    Ok(())
}

/// Check that a ring that is far too small loses mappings, counted, but makes no leak of any that is gone.
#[test]
fn a_full_ring_makes_no_leak() -> Result<()> {
    let fixture = c("mapping_flood")?;
    let recording = Heaptrace::tracing()?.record(&["--mmap", "--ring-size", "4K"], &[&fixture])?;
    let truth = recording.truth("mapped")?;
    let sites = recording.report.of_kind(Some("mmap"));
    let lost = recording.report.quality.lost["ring_full"];
    ensure!(
        lost > 0 && sites.allocations > 0,
        "nothing was lost: {sites:?}"
    );
    ensure!(sites.allocations < truth.allocations, "{sites:?}");
    ensure!(
        sites.live_bytes <= truth.live_bytes,
        "{} bytes live of {}",
        sites.live_bytes,
        truth.live_bytes
    );
    Ok(())
}
