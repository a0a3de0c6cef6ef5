//! Tests of targets with several processes: children by fork, vfork, posix_spawn and shells, program images by exec, and
//! threads that outlive their leader.

use std::ffi::OsStr;

use anyhow::Result;
use heaptrace_tests::{Heaptrace, Recording, all_match, c};

/// Fails unless the program images of each process have in sum the counts that the process reported.
fn every_process_matches(recording: &Recording) -> Result<()> {
    all_match(&recording.truths, &recording.report)?;
    let processes = &recording.report.processes;
    assert!(
        processes.iter().all(|process| process.ended),
        "not all have ended: {processes:?}"
    );
    Ok(())
}

fn untracked(recording: &Recording) -> u64 {
    recording.truths.iter().map(|truth| truth.untracked).sum()
}

/// Check that children and grandchildren by fork are followed from their first allocation, and that frees of their
/// parent's blocks count as untracked for them, and not at all for the parent.
#[test]
fn forked_children_are_followed() -> Result<()> {
    let recording = Heaptrace::tracing()?.record_all(&[c("forks")?])?;
    assert_eq!(recording.truths.len(), 6);
    every_process_matches(&recording)?;
    let quality = &recording.report.quality;
    assert_eq!(quality.untracked_frees, untracked(&recording));
    for truth in &recording.truths {
        let totals = recording.report.process(truth.pid)?.totals;
        truth.matches(&totals)?;
        assert_eq!(
            totals.temporary_allocations, truth.temporary,
            "{}",
            truth.role
        );
    }
    Ok(())
}

/// Check that a target that drops root's rights and then forks is followed.
#[test]
fn a_family_without_root_is_followed() -> Result<()> {
    let fixture = c("forks")?;
    let recording =
        Heaptrace::tracing()?.record_all(&[fixture.path.as_os_str(), OsStr::new("65534")])?;
    assert_eq!(recording.truths.len(), 6);
    every_process_matches(&recording)
}

/// Check that a command that `setpriv` runs as another user is followed through the `exec`.
#[test]
fn an_unprivileged_command_is_followed() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let program = heaptrace_tests::open_to_nobody(here.folder(), &c("forks")?.path)?;
    let recording = here.record_all(&[
        OsStr::new("setpriv"),
        OsStr::new("--reuid=65534"),
        OsStr::new("--regid=65534"),
        OsStr::new("--clear-groups"),
        program.as_os_str(),
    ])?;
    assert_eq!(recording.truths.len(), 6);
    every_process_matches(&recording)
}

/// Check that with `--no-children` only the command itself is traced, and its children run normally.
#[test]
fn children_can_be_excluded() -> Result<()> {
    let recording = Heaptrace::tracing()?.record(&["--no-children"], &[c("forks")?])?;
    assert_eq!(recording.ended.code(), 0, "{}", recording.ended.stderr);
    recording.report.check_nothing_lost()?;
    assert_eq!(recording.truths.len(), 6, "the children did not run");
    let main = recording.truth("main")?;
    main.matches(&recording.report.totals)?;
    let pids: Vec<u32> = recording.report.processes.iter().map(|p| p.pid).collect();
    assert_eq!(pids, [main.pid]);
    Ok(())
}

/// Check that children are followed through fork and exec, vfork, posix_spawn, system, and a chain of shells, and that
/// `exec` without a fork begins a new image under the same pid.
#[test]
fn other_programs_are_followed() -> Result<()> {
    let recording = Heaptrace::tracing()?.record_all(&[c("spawns")?])?;
    let mut roles: Vec<&str> = recording
        .truths
        .iter()
        .map(|truth| truth.role.as_str())
        .collect();
    roles.sort_unstable();
    assert_eq!(
        roles,
        [
            "again", "before", "chain", "fork", "main", "spawn", "system", "vfork"
        ]
    );
    every_process_matches(&recording)?;
    let (before, again) = (recording.truth("before")?, recording.truth("again")?);
    assert_eq!(before.pid, again.pid);
    // One pid has two images, each with its own counts.
    for truth in [before, again] {
        let images = recording.report.images(truth.pid);
        assert!(
            images
                .iter()
                .any(|image| truth.matches(&image.totals).is_ok()),
            "no image has what {} reports: {images:?}",
            truth.role
        );
    }
    Ok(())
}

/// Check that children keep their probes while children of their own start, share a CPU with them, and end. Kernels may
/// swap the perf events of such relatives, and then the end of one removes the probes of another.
#[test]
fn relatives_keep_their_probes() -> Result<()> {
    let recording = Heaptrace::tracing()?.record_all(&[c("relatives")?])?;
    assert_eq!(recording.truths.len(), 211);
    assert_eq!(recording.report.totals.allocations, 2210);
    every_process_matches(&recording)
}

/// Check that a process whose first thread ends early is traced to its real end.
#[test]
fn a_process_outlives_its_leader() -> Result<()> {
    let recording = Heaptrace::tracing()?.record_all(&[c("leaderless")?])?;
    let truth = recording.truth("main")?;
    truth.matches(&recording.report.truth(Some(truth.pid)))
}
