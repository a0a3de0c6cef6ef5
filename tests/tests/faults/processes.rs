//! Agents and guardians that are stopped or killed, and two agents at the same time.

use std::ffi::OsStr;

use anyhow::{Context as _, Result};
use heaptrace_tests::{Child, Heaptrace, Holdings, MINUTE, c, c_hostile, ready_pid, truths, until};

use crate::ready;

/// Starts a run of all processes with this name.
fn start_all(here: &Heaptrace, name: &str) -> Result<Child> {
    let mut tracer = here.start_record(&[
        "--all",
        "--from-birth",
        "--comm",
        name,
        "--interval",
        "100ms",
    ])?;
    here.wait_recording(&mut tracer)?;
    Ok(tracer)
}

/// Check that the target of a killed agent continues, and that the agent's file can be read.
#[test]
fn a_killed_agent_harms_no_target() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let (mut target, pid) = ready(&c("forever")?, &[])?;
    let options = ["--pid", &pid.to_string(), "--interval", "100ms"];
    let mut tracer = here.start_record(&options)?;
    here.wait_attached(&mut tracer, pid)?;
    let holdings = Holdings::of(tracer.pid())?;
    here.wait_recorded(pid, 1)?;
    tracer.signal(libc::SIGKILL)?;
    tracer.wait()?;
    let report = here.report()?;
    assert!(report.truth(Some(pid)).allocations > 0);
    target.go()?;
    assert_eq!(truths(&target.wait()?.success()?.stdout)?.len(), 1);
    holdings.are_gone()
}

/// Check that an agent that is stopped while its target allocates counts every event that it loses.
#[test]
fn a_stopped_agent_counts_what_it_loses() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let (mut target, _) = ready(&c("flood")?, &["wait"])?;
    let options = [
        "--all",
        "--from-birth",
        "--comm",
        "flood",
        "--ring-size",
        "64KiB",
    ];
    let mut tracer = here.start_record(&options)?;
    here.wait_recording(&mut tracer)?;
    tracer.signal(libc::SIGSTOP)?;
    target.go()?;
    let truth = truths(&target.line()?)?.remove(0);
    tracer.signal(libc::SIGCONT)?;
    target.wait()?.success()?;
    tracer.signal(libc::SIGINT)?;
    // Reading the report checks its sums.
    let report = here.finish(tracer)?.report;
    let seen = report.totals;
    assert!(report.lost() > 0, "{seen:?}");
    assert!(
        seen.allocations + report.lost() >= truth.allocations,
        "{seen:?} and {:?} of {truth:?}",
        report.quality.lost
    );
    truth.has_no_false_leak(&seen)
}

/// Check that a run continues without its guardian: counts of probed files are exact, and a file that is mapped later
/// is named with the reason. (Once, the guardian's death ended the run.)
#[test]
fn a_killed_guardian_is_reported() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let library = c_hostile("many_hooks", "hooks-3.so", &["-DHOOKS=3"])?;
    let path = library.path.display().to_string();
    let mut target = Child::spawn(
        c("mapper")?
            .command()
            .args([OsStr::new("--"), library.as_ref()]),
    )?;
    let pid = ready_pid(&target.line()?)?;
    let tracer = start_all(&here, "mapper")?;
    Holdings::of(tracer.pid())?.kill_guardian()?;
    target.go()?;
    target.line()?;
    let is_named = || -> Result<bool> {
        let quality = here.report()?.quality;
        let mut named = quality.unprobed.iter();
        Ok(named.any(|it| it.contains(&path) && it.contains("guardian")))
    };
    until("the library among the unprobed files", MINUTE, is_named)
        .with_context(|| format!("{:?}", here.report().map(|report| report.quality)))?;
    let ended = target.wait()?.success()?;
    tracer.signal(libc::SIGINT)?;
    let recording = here.finish(tracer)?;
    assert_eq!(recording.ended.code(), 0, "{}", recording.ended.stderr);
    let seen = recording.report.truth(Some(pid));
    truths(&ended.stdout)?.remove(0).matches(&seen)
}

/// Check that two agents with `--all` at the same time count the same.
#[test]
fn two_agents_have_the_same_numbers() -> Result<()> {
    let (first, second) = (Heaptrace::tracing()?, Heaptrace::tracing()?);
    let (mut target, pid) = ready(&c("older")?, &[])?;
    let tracers = [start_all(&first, "older")?, start_all(&second, "older")?];
    target.go()?;
    let ended = target.wait()?.success()?;
    let truth = truths(&ended.stdout)?;
    let mut totals = Vec::new();
    for (here, tracer) in [&first, &second].into_iter().zip(tracers) {
        tracer.signal(libc::SIGINT)?;
        let report = here.finish(tracer)?.report;
        report.check_nothing_lost()?;
        for truth in &truth {
            truth.matches(&report.truth(Some(truth.pid)))?;
        }
        totals.push(report.process(pid)?.totals);
    }
    assert_eq!(totals[0], totals[1]);
    Ok(())
}
