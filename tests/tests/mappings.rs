//! Tests of mapped memory: memory that programs map themselves is recorded to the page, and is distinguished from blocks.

use std::ffi::OsStr;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{Child, Fixture, Heaptrace, Recording, Report, Totals, c, c_linked};

fn recorded(options: &[&str], command: &[&OsStr]) -> Result<Recording> {
    let recording = Heaptrace::tracing()?.record(options, command)?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    recording.report.check_nothing_lost()?;
    Ok(recording)
}

/// The totals of the fixture's blocks.
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
        (
            &mut all.left_at_exit_allocations,
            mapped.left_at_exit_allocations,
        ),
        (&mut all.left_at_exit_bytes, mapped.left_at_exit_bytes),
    ] {
        *counter -= mapped;
    }
    all
}

/// Records the fixture, and compares both of its counts with their sites: those of blocks and those of mappings.
fn both(fixture: &Fixture) -> Result<Recording> {
    let recording = recorded(&["--mmap"], &[fixture.as_ref()])?;
    let report = &recording.report;
    let (blocks, mapped) = (recording.truth("main")?, recording.truth("mapped")?);
    blocks.matches(&blocks_of(report))?;
    let sites = report.of_kind(Some("mmap"));
    mapped.matches(&sites)?;
    ensure!(report.mapped == Some(sites), "{:?}", report.mapped);
    // Nothing else maps memory, and no block counts as a mapping.
    mapped.matches_beside(&report.totals, &report.of_kind(None))?;
    ensure!(
        report.quality.failed_allocations == blocks.failed + mapped.failed,
        "{:?}",
        report.quality
    );
    Ok(recording)
}

/// Check that mappings are counted to the page through every way of unmapping parts of them, and that blocks which
/// `malloc` maps count as blocks only.
#[test]
fn every_page_is_counted() -> Result<()> {
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

/// Check that mappings are counted with a static C library, and with musl, shared and static.
#[test]
fn other_c_libraries_are_counted() -> Result<()> {
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

/// Check that memory which another allocator maps for its blocks doesn't count as mapped, even if the allocator maps it
/// outside of its functions.
#[test]
fn mappings_of_allocators_do_not_count() -> Result<()> {
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

/// Check that sampling records every mapping, exactly.
#[test]
fn sampling_records_every_mapping() -> Result<()> {
    let fixture = c("mappings")?;
    let recording = recorded(&["--mmap", "--sample", "1MiB"], &[fixture.as_ref()])?;
    let sites = recording.report.of_kind(Some("mmap"));
    recording.truth("mapped")?.matches(&sites)?;
    assert_eq!((sites.allocations_error, sites.live_bytes_error), (0, 0));
    Ok(())
}

/// Check that mappings are recorded by default, apart from blocks, and that the resident memory of an ended process
/// covers what it touched.
#[test]
fn mappings_are_recorded_by_default() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let mut command = here.command(&["record", "-o"])?;
    command
        .arg(here.data())
        .arg("--")
        .arg(c("mappings")?.as_ref());
    let recording = here.finish(Child::spawn(&mut command)?)?;
    let report = &recording.report;
    let (blocks, mapped) = (recording.truth("main")?, recording.truth("mapped")?);
    blocks.matches(&blocks_of(report))?;
    mapped.matches(&report.kinds.mapped)?;
    let memory = report.process(mapped.pid)?.memory;
    ensure!(
        memory.resident == 0 && memory.resident_before == 0,
        "{memory:?}"
    );
    ensure!(memory.peak_resident > 1 << 20, "{memory:?}");
    Ok(())
}

/// Check that `--no-mmap` leaves mappings out.
#[test]
fn mappings_can_be_left_out() -> Result<()> {
    let recording = recorded(&["--no-mmap"], &[c("mappings")?.as_ref()])?;
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

/// Check that counts are exact when threads get addresses that others have just unmapped, before the calls of those have
/// returned.
#[test]
fn threads_race_for_addresses() -> Result<()> {
    let recording = recorded(&["--mmap"], &[c("mapping_flood")?.as_ref()])?;
    let truth = recording.truth("mapped")?;
    let sites = recording.report.of_kind(Some("mmap"));
    let expected = (truth.allocations, truth.live_bytes);
    assert_eq!((sites.allocations, sites.unfreed_bytes()), expected);
    Ok(())
}

/// Check that a ring that is too small counts the mappings that it loses, and makes no leak of an unmapped one.
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
        sites.unfreed_bytes() <= truth.live_bytes,
        "{} bytes live of {}",
        sites.unfreed_bytes(),
        truth.live_bytes
    );
    Ok(())
}
