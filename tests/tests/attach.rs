//! Tests of `record --pid`: targets that ran before the tracer, and tracers that end before their targets.

use std::ffi::OsStr;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use heaptrace_tests::{
    Child, Ended, Fixture, Heaptrace, MINUTE, c, ready_pid, send, truths, until, uprobe_events,
};

/// Starts a fixture and waits until it says that it is ready.
fn ready(fixture: &Fixture, arguments: &[&str]) -> Result<(Child, u32)> {
    let mut target = Child::spawn(fixture.command().args(arguments))?;
    let pid = ready_pid(&target.line()?)?;
    Ok((target, pid))
}

/// Starts `record --pid` with further options, and waits until it has attached.
fn attached(here: &Heaptrace, pid: u32, options: &[&str]) -> Result<Child> {
    let pid_text = pid.to_string();
    let mut arguments = vec!["--pid", &pid_text];
    arguments.extend(options);
    let mut tracer = here.start_record(&arguments)?;
    here.wait_attached(&mut tracer, pid)?;
    Ok(tracer)
}

fn one_truth(ended: &Ended, role: &str) -> Result<heaptrace_tests::Truth> {
    let mut all = truths(&ended.stdout)?;
    all.retain(|truth| truth.role == role);
    anyhow::ensure!(
        all.len() == 1,
        "{} reports as {role}: {}",
        all.len(),
        ended.stdout
    );
    Ok(all.remove(0))
}

/// Check that all threads and later children of a running process are traced, and that frees of its older blocks
/// count as untracked and make no counter negative.
#[test]
fn older_blocks_are_untracked() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let (mut target, pid) = ready(&c("older")?, &[])?;
    let tracer = attached(&here, pid, &[])?;
    target.go()?;
    let ended = target.wait()?.success()?;
    let recording = here.finish(tracer)?;
    assert_eq!(recording.ended.code(), 0, "{}", recording.ended.stderr);
    let report = &recording.report;
    report.check_nothing_lost()?;
    let (main, child) = (one_truth(&ended, "main")?, one_truth(&ended, "child")?);
    main.matches(&report.process(pid)?.totals)?;
    child.matches(&report.process(child.pid)?.totals)?;
    let untracked = main.untracked + child.untracked;
    assert_eq!(report.quality.untracked_frees, untracked);
    Ok(())
}

/// Check that with `--no-children` a child of the target is not traced.
#[test]
fn children_can_be_excluded() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let (mut target, pid) = ready(&c("older")?, &[])?;
    let tracer = attached(&here, pid, &["--no-children"])?;
    target.go()?;
    let main = one_truth(&target.wait()?.success()?, "main")?;
    let recording = here.finish(tracer)?;
    main.matches(&recording.report.totals)?;
    assert_eq!(recording.report.quality.untracked_frees, main.untracked);
    Ok(())
}

/// Check that the tracer can attach to a process whose first thread has ended.
#[test]
fn a_process_without_its_leader_is_traced() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let (mut target, pid) = ready(&c("leaderless")?, &["wait"])?;
    let tracer = attached(&here, pid, &[])?;
    target.go()?;
    let truth = one_truth(&target.wait()?.success()?, "main")?;
    let recording = here.finish(tracer)?;
    recording.report.check_nothing_lost()?;
    truth.matches(&recording.report.truth(Some(pid)))
}

/// Check that two tracers of one target count the same.
#[test]
fn two_tracers_see_the_same() -> Result<()> {
    let (first, second) = (Heaptrace::tracing()?, Heaptrace::tracing()?);
    let (mut target, pid) = ready(&c("older")?, &[])?;
    let first_tracer = attached(&first, pid, &[])?;
    let second_tracer = attached(&second, pid, &[])?;
    target.go()?;
    let truth = one_truth(&target.wait()?.success()?, "main")?;
    let seen = [first.finish(first_tracer)?, second.finish(second_tracer)?];
    for recording in &seen {
        recording.report.check_nothing_lost()?;
        truth.matches(&recording.report.process(pid)?.totals)?;
    }
    let [first, second] = seen.map(|recording| recording.report);
    assert_eq!(first.totals, second.totals);
    assert_eq!(
        first.quality.untracked_frees,
        second.quality.untracked_frees
    );
    Ok(())
}

/// Check that one tracer can have several targets.
#[test]
fn one_tracer_has_two_targets() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let fixture = c("older")?;
    let (mut one, one_pid) = ready(&fixture, &[])?;
    let (mut other, other_pid) = ready(&fixture, &[])?;
    let mut tracer = attached(&here, one_pid, &["--pid", &other_pid.to_string()])?;
    here.wait_attached(&mut tracer, other_pid)?;
    one.go()?;
    let one_truth_ = one_truth(&one.wait()?.success()?, "main")?;
    // The run continues until the last target has ended.
    other.go()?;
    let other_truth = one_truth(&other.wait()?.success()?, "main")?;
    let report = here.finish(tracer)?.report;
    one_truth_.matches(&report.process(one_pid)?.totals)?;
    other_truth.matches(&report.process(other_pid)?.totals)?;
    Ok(())
}

/// Check that processes other than the target are not in the report.
#[test]
fn other_processes_are_not_traced() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let (mut target, pid) = ready(&c("older")?, &[])?;
    let tracer = attached(&here, pid, &[])?;
    heaptrace_tests::run(&mut c("hooks")?.command())?.success()?;
    target.go()?;
    let ended = target.wait()?.success()?;
    let child = one_truth(&ended, "child")?;
    let mut pids: Vec<u32> = here
        .finish(tracer)?
        .report
        .processes
        .iter()
        .map(|p| p.pid)
        .collect();
    pids.sort_unstable();
    let mut expected = [pid, child.pid];
    expected.sort_unstable();
    assert_eq!(pids, expected);
    Ok(())
}

/// The uprobe events of a tracer that has ended. Others may trace at the same time.
fn left_behind(tracer: u32) -> Result<Vec<String>> {
    let own = tracer.to_string();
    Ok(uprobe_events()?
        .lines()
        .filter(|line| line.contains("heaptrace") && line.contains(&own))
        .map(str::to_owned)
        .collect())
}

/// Waits until the guardian has removed all events of a tracer that has ended.
fn nothing_is_left(tracer: u32) -> Result<()> {
    until("the guardian to remove all uprobe events", MINUTE, || {
        Ok(left_behind(tracer)?.is_empty())
    })
}

/// Ends a tracer by `end` while its target allocates. The tracer must end with status 0, and the target must
/// continue and keep no probe.
fn ends_in_order(end: impl FnOnce(&Child) -> Result<()>, options: &[&str]) -> Result<()> {
    let here = Heaptrace::tracing()?;
    let (mut target, pid) = ready(&c("forever")?, &[])?;
    let tracer = attached(&here, pid, options)?;
    here.wait_recorded(pid, 101)?;
    end(&tracer)?;
    let tracer_pid = tracer.pid();
    let recording = here.finish(tracer)?;
    nothing_is_left(tracer_pid)?;
    assert_eq!(recording.ended.code(), 0, "{}", recording.ended.stderr);
    assert!(target.running()?, "the target ended with its tracer");
    target.go()?;
    let truth = one_truth(&target.wait()?.success()?, "main")?;
    let report = &recording.report;
    report.check_nothing_lost()?;
    let seen = report.truth(Some(pid));
    assert!(seen.allocations > 100, "{seen:?}");
    assert!(
        seen.allocations < truth.allocations,
        "{seen:?} of {truth:?}"
    );
    assert!(
        seen.live_allocations <= 3,
        "more is live than there are threads: {seen:?}"
    );
    assert!(!report.process(pid)?.ended);
    // A complete file is read without a warning.
    let read = here.run(&["report", "heaptrace.data"])?.success()?;
    assert_eq!(read.stderr, "");
    Ok(())
}

/// Check that SIGINT ends a run with a complete file.
#[test]
fn interrupt_ends_a_run_in_order() -> Result<()> {
    ends_in_order(|tracer| tracer.signal(libc::SIGINT), &[])
}

/// Check that SIGTERM ends a run with a complete file.
#[test]
fn terminate_ends_a_run_in_order() -> Result<()> {
    ends_in_order(|tracer| tracer.signal(libc::SIGTERM), &[])
}

/// Check that `--duration` ends a run after that time, with a complete file.
#[test]
fn a_duration_ends_a_run_in_order() -> Result<()> {
    ends_in_order(|_| Ok(()), &["--duration", "3s"])?;
    let here = Heaptrace::tracing()?;
    let recording = here.record(&["--duration", "1s"], &["sleep", "30"])?;
    let seconds = Duration::from_nanos(recording.report.duration_ns).as_secs_f64();
    assert!((0.9..20.0).contains(&seconds), "{seconds} s");
    Ok(())
}

/// Check that a tracer killed by SIGKILL leaves a running target, no probe, and a file that is read with a warning.
#[test]
fn a_killed_tracer_harms_no_target() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let (mut target, pid) = ready(&c("forever")?, &[])?;
    let tracer = attached(&here, pid, &["--interval", "200ms"])?;
    here.wait_recorded(pid, 101)?;
    let tracer_pid = tracer.pid();
    tracer.signal(libc::SIGKILL)?;
    assert_eq!(tracer.wait()?.code(), 128 + libc::SIGKILL);
    // The target must survive its next calls, with the probes that may still be there: no condition shows that.
    thread::sleep(Duration::from_millis(300));
    assert!(target.running()?, "the target died with its tracer");
    target.go()?;
    let truth = one_truth(&target.wait()?.success()?, "main")?;

    let text = here.run(&["report", "heaptrace.data"])?.success()?;
    assert!(
        !text.stderr.is_empty(),
        "no warning that the file ends early"
    );
    assert!(text.stderr.lines().count() <= 2, "{}", text.stderr);
    let seen = here.report()?.truth(Some(pid));
    assert!(seen.allocations > 100, "{seen:?}");
    assert!(
        seen.allocations < truth.allocations,
        "{seen:?} of {truth:?}"
    );
    nothing_is_left(tracer_pid)
}

/// Check that a command whose tracer is killed by SIGKILL continues to its own end.
#[test]
fn a_command_survives_its_tracer() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let forever = c("forever")?;
    let mut tracer = here.start_record(&[
        OsStr::new("--interval"),
        OsStr::new("200ms"),
        OsStr::new("--"),
        forever.path.as_os_str(),
    ])?;
    let pid = ready_pid(&tracer.line()?)?;
    here.wait_recorded(pid, 101)?;
    tracer.signal(libc::SIGKILL)?;
    until("the tracer's end", MINUTE, || Ok(!tracer.running()?))?;
    // The command must survive its next calls, with the probes that may still be there: no condition shows that.
    thread::sleep(Duration::from_millis(300));
    send(i32::try_from(pid)?, libc::SIGTERM)?;
    let truth = truths(&tracer.line()?)?;
    assert_eq!(truth.len(), 1, "the command did not live to report");
    let seen = here.report()?.truth(Some(pid));
    assert!(seen.allocations > 100, "{seen:?}");
    Ok(())
}

/// Check that a process id that no process has is refused with its number.
#[test]
fn a_missing_process_is_refused() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let mut gone = Child::spawn(&mut Command::new("true"))?;
    let pid = gone.pid().to_string();
    until("the process's end", MINUTE, || Ok(!gone.running()?))?;
    for pid in [pid.as_str(), "4194303"] {
        let ended = here.run(&["record", "--pid", pid])?.fails_clearly()?;
        assert!(ended.stderr.contains(pid), "{}", ended.stderr);
        assert!(!here.data().exists(), "a file without a target");
    }
    Ok(())
}

/// Check that if a process ends while the tracer attaches, the run ends normally or with a clear error.
#[test]
fn a_process_that_ends_while_attaching() -> Result<()> {
    for milliseconds in [0, 10, 30, 60, 100, 150, 250, 400] {
        let here = Heaptrace::tracing()?;
        let seconds = format!("0.{milliseconds:03}");
        let target = Child::spawn(Command::new("sleep").arg(seconds))?;
        let ended = here.run(&["record", "--pid", &target.pid().to_string()])?;
        target.wait()?;
        if ended.code() == 0 {
            here.report()?;
        } else {
            ended.fails_clearly()?;
        }
    }
    Ok(())
}
