//! Targets that become several processes: children by fork, vfork, posix_spawn and shells, program
//! images by exec, and threads that outlive their leader.

use std::ffi::OsStr;

use anyhow::Result;
use heaptrace_tests::{Heaptrace, Recording, all_match, c};

/// Fails unless every process that reported has the counts that it reported, in the sum of its
/// program images.
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

/// Check that children and grandchildren by fork are followed from their first allocation, and that
/// what they free of their parent's is an untracked free in them and nothing in the parent.
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

/// Check that a target that gives up root, and then forks, is followed all the same.
#[test]
fn a_family_without_root_is_followed() -> Result<()> {
    let fixture = c("forks")?;
    let recording =
        Heaptrace::tracing()?.record_all(&[fixture.path.as_os_str(), OsStr::new("65534")])?;
    assert_eq!(recording.truths.len(), 6);
    every_process_matches(&recording)
}

/// Check that a command that another user's login runs is followed through `setpriv`'s exec.
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

/// Check that with `--no-children` only the command itself is traced, and runs as ever.
#[test]
fn children_can_be_left_alone() -> Result<()> {
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

/// Check that children are followed through fork and exec, vfork, posix_spawn, system, a chain of
/// shells, and exec in place, which begins a new image under the same pid.
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
    // One pid, two images, each with counts of its own.
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

/// Check that children keep their probes while children of their own come, take turns with them on one
/// CPU, and go: kernels may swap the perf events of such relatives, so that those of one went with the end of another.
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
