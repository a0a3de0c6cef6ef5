//! Agents and guardians that are stopped or killed, and agents that run side by side.

use std::ffi::OsStr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use heaptrace_tests::{Child, Heaptrace, Holdings, c, c_hostile, ready_pid, send, truths};

use crate::ready;

/// A run of all processes of this name.
fn start_all(here: &Heaptrace, name: &str) -> Result<Child> {
    let mut tracer = here.start_record(&["--all", "--comm", name, "--interval", "100ms"])?;
    here.wait_recording(&mut tracer)?;
    Ok(tracer)
}

/// Check that the target of an agent that is killed goes on, and that what the agent had written can be read.
#[test]
fn a_killed_agent_harms_nobody() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let (mut target, pid) = ready(&c("forever")?, &[])?;
    let options = ["--pid", &pid.to_string(), "--interval", "100ms"];
    let mut tracer = here.start_record(&options)?;
    here.wait_attached(&mut tracer, pid)?;
    let holdings = Holdings::of(tracer.pid())?;
    let deadline = Instant::now() + Duration::from_secs(30);
    while !here
        .report()
        .is_ok_and(|report| report.totals.allocations > 0)
    {
        ensure!(Instant::now() < deadline, "nothing was recorded");
        thread::sleep(Duration::from_millis(100));
    }
    tracer.signal(libc::SIGKILL)?;
    tracer.wait()?;
    let report = here.report()?;
    assert!(report.truth(Some(pid)).allocations > 0);
    target.go()?;
    assert_eq!(truths(&target.wait()?.success()?.stdout)?.len(), 1);
    holdings.are_gone()
}

/// Check that an agent that is stopped for a while loses only what it counts, and that its sums add up.
#[test]
fn a_stopped_agent_counts_what_it_loses() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let (mut target, _) = ready(&c("flood")?, &["wait"])?;
    let options = ["--all", "--comm", "flood", "--ring-size", "64KiB"];
    let mut tracer = here.start_record(&options)?;
    here.wait_recording(&mut tracer)?;
    tracer.signal(libc::SIGSTOP)?;
    target.go()?;
    let truth = truths(&target.line()?)?.remove(0);
    thread::sleep(Duration::from_secs(2));
    tracer.signal(libc::SIGCONT)?;
    target.wait()?.success()?;
    tracer.signal(libc::SIGINT)?;
    // Reading it checks that the sums add up.
    let report = here.finish(tracer)?.report;
    let seen = report.totals;
    assert!(report.lost() > 0, "{seen:?}");
    assert!(
        seen.allocations + report.lost() >= truth.allocations,
        "{seen:?} and {:?} of {truth:?}",
        report.quality.lost
    );
    truth.has_no_leak_made(&seen)
}

/// Check that a run goes on without its guardian: what was probed is counted exactly, and a file that comes later is
/// named with the reason. It ended the run.
#[test]
fn a_killed_guardian_is_noted() -> Result<()> {
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
    let guardian = Holdings::of(tracer.pid())?.guardian;
    send(i32::try_from(guardian)?, libc::SIGKILL)?;
    thread::sleep(Duration::from_millis(300));
    target.go()?;
    target.line()?;
    let deadline = Instant::now() + Duration::from_secs(60);
    let is_named = || -> Result<bool> {
        let quality = here.report()?.quality;
        let mut named = quality.unprobed.iter();
        Ok(named.any(|it| it.contains(&path) && it.contains("guardian")))
    };
    while !is_named()? {
        ensure!(Instant::now() < deadline, "{:?}", here.report()?.quality);
        thread::sleep(Duration::from_millis(100));
    }
    let ended = target.wait()?.success()?;
    tracer.signal(libc::SIGINT)?;
    let recording = here.finish(tracer)?;
    assert_eq!(recording.ended.code(), 0, "{}", recording.ended.stderr);
    let seen = recording.report.truth(Some(pid));
    truths(&ended.stdout)?.remove(0).matches(&seen)
}

/// Check that two agents that trace all at once have the same numbers.
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
