//! Tests that no run leaves anything behind, after every way in which it can end.
//!
//! They read the kernel's own lists of programs, maps, links and uprobe events, and the breakpoints in the target.

use std::ffi::OsStr;
use std::process::Command;
use std::time::Instant;

use anyhow::Result;
use heaptrace_tests::{
    Child, Heaptrace, Holdings, MINUTE, c, definitions, ready_pid, send, truths, until,
};

/// Ends a run by `end`, which gets the tracer and its target. Then nothing may be left of the run. If the target
/// continues, it must report its counts.
fn leaves_nothing(
    options: &[&str],
    end: impl FnOnce(&Heaptrace, &Child, &mut Child, &Holdings) -> Result<()>,
) -> Result<()> {
    let here = Heaptrace::tracing()?;
    let mut target = Child::spawn(&mut c("forever")?.command())?;
    let pid = ready_pid(&target.line()?)?;
    let pid_text = pid.to_string();
    let mut arguments = vec!["--exact", "--pid", &pid_text];
    arguments.extend(options);
    let mut tracer = here.start_record(&arguments)?;
    here.wait_attached(&mut tracer, pid)?;
    let holdings = Holdings::of(tracer.pid())?;
    end(&here, &tracer, &mut target, &holdings)?;
    tracer.wait()?;
    holdings.are_gone()?;
    assert!(here.report()?.totals.allocations > 0);
    if target.running()? {
        target.go()?;
        assert_eq!(truths(&target.wait()?.success()?.stdout)?.len(), 1);
    }
    Ok(())
}

/// Check that nothing is left after a run that ends by `--duration`.
#[test]
fn a_duration_leaves_nothing() -> Result<()> {
    leaves_nothing(&["--duration", "2s"], |_, _, _, _| Ok(()))
}

/// Check that a run ends long before the kernel has removed its probes, one after the other, and that its file is whole
/// then. (Once, Ctrl-C took as long as the kernel.) A busy machine may delay a run, so one of three is enough.
#[test]
fn the_end_does_not_wait_for_the_kernel() -> Result<()> {
    let mut seen = Vec::new();
    for _ in 0..3 {
        let here = Heaptrace::tracing()?;
        let mut target = Child::spawn(&mut c("forever")?.command())?;
        let pid = ready_pid(&target.line()?)?;
        let mut tracer = here.start_record(&["--pid", &pid.to_string()])?;
        here.wait_attached(&mut tracer, pid)?;
        here.wait_recorded(pid, 1)?;
        let holdings = Holdings::of(tracer.pid())?;
        let begin = Instant::now();
        tracer.signal(libc::SIGINT)?;
        let recording = here.finish(tracer)?;
        let ended = begin.elapsed();
        holdings.are_gone()?;
        let gone = begin.elapsed();
        println!("ended after {ended:?}, gone after {gone:?}");
        recording.report.check_nothing_lost()?;
        assert!(
            !recording.ended.stderr.contains("ends early"),
            "{}",
            recording.ended.stderr
        );
        seen.push((ended, gone));
        target.go()?;
        let truth = truths(&target.wait()?.success()?.stdout)?;
        assert!(recording.report.totals.allocations <= truth[0].allocations);
        if ended * 5 < gone {
            return Ok(());
        }
    }
    anyhow::bail!("no run ended before the kernel had removed its probes: {seen:?}");
}

/// Check that nothing is left after SIGINT, SIGTERM and SIGHUP.
#[test]
fn signals_leave_nothing() -> Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        leaves_nothing(&[], |_, tracer, _, _| tracer.signal(signal))?;
    }
    Ok(())
}

/// Check that nothing is left after SIGKILL of the tracer.
#[test]
fn a_killed_tracer_leaves_nothing() -> Result<()> {
    leaves_nothing(&["--interval", "100ms"], |here, tracer, target, _| {
        here.wait_recorded(target.pid(), 1)?;
        tracer.signal(libc::SIGKILL)
    })
}

/// Check that a run continues without its guardian, and leaves nothing at its end.
#[test]
fn a_killed_guardian_leaves_nothing() -> Result<()> {
    leaves_nothing(&[], |_, tracer, _, holdings| {
        holdings.kill_guardian()?;
        tracer.signal(libc::SIGINT)
    })
}

/// Check that nothing is left after the target is killed.
#[test]
fn a_killed_target_leaves_nothing() -> Result<()> {
    leaves_nothing(&[], |_, _, target, _| target.signal(libc::SIGKILL))
}

/// Check that a command that outlives its killed tracer keeps none of the tracer's objects alive.
#[test]
fn a_surviving_command_keeps_nothing() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let forever = c("forever")?;
    let mut tracer = here.start_record(&[OsStr::new("--"), forever.path.as_os_str()])?;
    let pid = ready_pid(&tracer.line()?)?;
    let holdings = Holdings::of(tracer.pid())?;
    tracer.signal(libc::SIGKILL)?;
    until("the tracer's end", MINUTE, || Ok(!tracer.running()?))?;
    holdings.are_gone()?;
    // Fails if the command has ended.
    send(i32::try_from(pid)?, 0)
}

/// Check that nothing is left after runs with `--all`, also with `--from-birth`, interrupted and killed.
#[test]
fn runs_of_all_leave_nothing() -> Result<()> {
    let each: &[&str] = &["--all", "--comm", "ht-no-process"];
    let from_birth: &[&str] = &["--all", "--from-birth", "--comm", "ht-no-process"];
    for (signal, options) in [
        (libc::SIGINT, each),
        (libc::SIGKILL, each),
        (libc::SIGINT, from_birth),
        (libc::SIGKILL, from_birth),
    ] {
        let here = Heaptrace::tracing()?;
        let mut tracer = here.start_record(options)?;
        here.wait_recording(&mut tracer)?;
        let holdings = Holdings::of(tracer.pid())?;
        tracer.signal(signal)?;
        tracer.wait()?;
        holdings.are_gone()?;
    }
    Ok(())
}

/// Check that if tracer and guardian are killed together, the next run removes what they left.
#[test]
fn the_next_run_cleans_up() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let mut tracer = here.start_record(&["--all", "--comm", "ht-no-process"])?;
    here.wait_recording(&mut tracer)?;
    let holdings = Holdings::of(tracer.pid())?;
    // The guardian is killed first: it must not see the tracer's end.
    holdings.kill_guardian()?;
    tracer.signal(libc::SIGKILL)?;
    tracer.wait()?;
    Heaptrace::tracing()?.record_all(&["true"])?;
    holdings.are_gone()
}

/// Check that a failed start leaves nothing: with a command that can't run, and a file that can't be written.
#[test]
fn failed_starts_leave_nothing() -> Result<()> {
    let here = Heaptrace::tracing()?;
    for arguments in [
        &["record", "--", "/etc/passwd"][..],
        &["record", "-o", "/no/such/folder/x", "--", "true"],
        &["record", "-o", "/no/such/folder/x", "--all"],
    ] {
        let failing = Child::spawn(
            Command::new(heaptrace_tests::heaptrace()?)
                .args(arguments)
                .current_dir(here.folder()),
        )?;
        let pid = failing.pid();
        failing.wait()?.fails_clearly()?;
        // The guardian removes them after the tracer's end.
        until(&format!("the end of {arguments:?}"), MINUTE, || {
            Ok(definitions(pid)?.is_empty())
        })?;
    }
    Ok(())
}
