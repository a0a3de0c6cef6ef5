//! Tests of starts and ends of processes under `--all`, where only kernel events tell of a process, and of targets that
//! other tools hold.
//!
//! Each fixture runs under a name of its own, by which `--comm` selects it.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use heaptrace_tests::{
    Child, Heaptrace, MINUTE, Recording, Report, Truth, all_match, c, has_ended, ready_pid,
    require_tool, run, send, truths, until,
};

/// A run of all processes with a name that only this test uses.
struct Run {
    here: Heaptrace,
    name: String,
    tracer: Child,
}

impl Run {
    fn new(name: &str, options: &[&str]) -> Result<Self> {
        let here = Heaptrace::tracing()?;
        let name = format!("ht-{name}");
        let mut arguments = vec!["--all", "--from-birth", "--exact", "--comm", &name];
        arguments.extend(options);
        let mut tracer = here.start_record(&arguments)?;
        here.wait_recording(&mut tracer)?;
        Ok(Self { here, name, tracer })
    }

    /// A copy of the fixture under that name.
    fn program(&self, fixture: &str) -> Result<PathBuf> {
        let copy = self.here.path(&self.name);
        run(Command::new("cp").arg(c(fixture)?.path).arg(&copy))?.success()?;
        Ok(copy)
    }

    fn end(self) -> Result<Recording> {
        self.tracer.signal(libc::SIGINT)?;
        let recording = self.here.finish(self.tracer)?;
        anyhow::ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
        Ok(recording)
    }

    /// Ends the run, and fails if an event was lost.
    fn report(self) -> Result<Report> {
        let report = self.end()?.report;
        report.check_nothing_lost()?;
        Ok(report)
    }
}

/// Runs a fixture under `--all`, by a command that gets its path. Returns its own counts and the report.
fn traced(
    name: &str,
    fixture: &str,
    command: impl FnOnce(&OsStr) -> Command,
) -> Result<(Vec<Truth>, Report)> {
    // The name after an exec of /proc/self/exe.
    let run_ = Run::new(name, &["--comm", "exe"])?;
    let program = run_.program(fixture)?;
    let ended = run(&mut command(program.as_os_str()))?.success()?;
    Ok((truths(&ended.stdout)?, run_.report()?))
}

/// Check that children by fork, exec, vfork, posix_spawn and system, and short-lived descendants, have their own
/// counts, and that all of them are reported as ended.
#[test]
fn families_are_counted() -> Result<()> {
    for (fixture, members) in [("forks", 6), ("spawns", 8), ("relatives", 211)] {
        let (truths, report) = traced(fixture, fixture, |program| Command::new(program))?;
        assert_eq!(truths.len(), members, "{fixture}");
        all_match(&truths, &report).with_context(|| fixture.to_owned())?;
        assert!(report.processes.iter().all(|process| process.ended));
    }
    Ok(())
}

/// Check that two processes with the same pid have records of their own, and that frees of the parent's blocks count
/// as untracked in both.
#[test]
fn a_pid_is_used_twice() -> Result<()> {
    let (truths, report) = traced("reuse", "reuse", |program| Command::new(program))?;
    let recorded = Heaptrace::tracing()?.record_all(&[c("reuse")?])?;
    for (truths, report) in [(truths, report), (recorded.truths, recorded.report)] {
        assert_eq!(truths.len(), 3);
        all_match(&truths, &report)?;
        let children = report.images(truths[0].pid);
        assert_eq!(children.len(), 2, "{children:?}");
        for truth in &truths[..2] {
            assert!(
                children.iter().any(|it| truth.matches(&it.totals).is_ok()),
                "no process has the counts of {}: {children:?}",
                truth.role
            );
        }
        assert_eq!(report.quality.untracked_frees, 2);
    }
    Ok(())
}

/// Check that a process whose first thread ends first is traced to its real end.
#[test]
fn a_process_outlives_its_leader() -> Result<()> {
    let (truths, report) = traced("leaderless", "leaderless", |program| Command::new(program))?;
    all_match(&truths, &report)?;
    assert!(report.process(truths[0].pid)?.ended);
    Ok(())
}

/// Check that a zombie is reported as ended with its counts, and that attaching to it is refused with an error.
#[test]
fn a_zombie_is_counted() -> Result<()> {
    let traced = Run::new("zombie", &[])?;
    let mut zombie = Child::spawn(&mut Command::new(traced.program("hooks")?))?;
    let truth = truths(&zombie.line()?)?.remove(0);
    until("the zombie", MINUTE, || Ok(has_ended(zombie.pid())))?;
    let refused = traced
        .here
        .run(&["record", "-o", "x", "--pid", &zombie.pid().to_string()])?;
    refused.fails_clearly()?;
    let report = traced.report()?;
    let process = report.process(zombie.pid())?;
    assert!(process.ended);
    truth.matches(&process.totals)
}

/// Check that a process that was stopped before the tracer started, and continues later, is counted.
#[test]
fn a_stopped_target_is_counted() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let mut target = Child::spawn(&mut c("older")?.command())?;
    let pid = ready_pid(&target.line()?)?;
    target.signal(libc::SIGSTOP)?;
    let mut tracer = here.start_record(&["--exact", "--pid", &pid.to_string()])?;
    here.wait_attached(&mut tracer, pid)?;
    target.go()?;
    // Time is the point: a stopped target does nothing in it.
    thread::sleep(Duration::from_millis(300));
    assert_eq!(here.report()?.totals.allocations, 0, "it was not stopped");
    target.signal(libc::SIGCONT)?;
    let truths = truths(&target.wait()?.success()?.stdout)?;
    let report = here.finish(tracer)?.report;
    report.check_nothing_lost()?;
    for truth in &truths {
        truth.matches(&report.process(truth.pid)?.totals)?;
    }
    Ok(())
}

/// Check that a process family under a debugger (ptrace) has exact counts, and that the debugger works.
#[test]
fn a_target_under_ptrace_is_counted() -> Result<()> {
    let strace = require_tool("strace", "strace")?;
    let (truths, report) = traced("ptraced", "forks", |program| {
        let mut command = Command::new(&strace);
        command.args(["-f", "-o", "/dev/null"]).arg(program);
        command
    })?;
    assert_eq!(truths.len(), 6);
    all_match(&truths, &report)
}

/// Check that seccomp doesn't kill a target with few system calls for its probes.
#[test]
fn a_target_under_seccomp_survives() -> Result<()> {
    for mode in ["strict", "filter"] {
        let (truths, report) = traced(&format!("seal-{mode}"), "sealed", |program| {
            let mut command = Command::new(program);
            command.arg(mode);
            command
        })?;
        all_match(&truths, &report).with_context(|| mode.to_owned())?;
        let recorded =
            Heaptrace::tracing()?.record(&[], &[c("sealed")?.as_ref(), OsStr::new(mode)])?;
        assert_eq!(recorded.ended.code(), 0, "{}", recorded.ended.stderr);
        recorded.truth("main")?.matches(&recorded.report.totals)?;
    }
    Ok(())
}

/// Check that a target in its own pid, mount and user namespaces is counted under its pid of the first pid namespace.
#[test]
fn a_target_in_other_namespaces_is_counted() -> Result<()> {
    let options = [
        "--pid",
        "--fork",
        "--mount",
        "--mount-proc",
        "--user",
        "--map-root-user",
    ];
    let (truths, report) = traced("spaces", "older", |program| {
        let mut command = Command::new("unshare");
        command.args(options).arg(program);
        command
    })?;
    assert_eq!(truths.len(), 2);
    assert_eq!(report.processes.len(), 2, "{:?}", report.processes);
    for truth in &truths {
        assert!(truth.pid < 10, "{truth:?}");
        assert!(
            report
                .processes
                .iter()
                .any(|it| truth.matches(&report.truth(Some(it.pid))).is_ok()),
            "no process has the counts of {}: {:?}",
            truth.role,
            report.processes
        );
        assert!(report.processes.iter().all(|it| it.pid != truth.pid));
    }
    Ok(())
}

/// Check that a target at its memory limit is not killed, and that its failed allocations are counted.
#[test]
fn a_target_at_its_limit_of_memory_is_counted() -> Result<()> {
    let (truths, report) = traced("limit", "failing", |program| {
        let mut command = Command::new("prlimit");
        command.arg("--as=67108864").arg(program);
        command
    })?;
    all_match(&truths, &report)?;
    let failed: u64 = truths.iter().map(|truth| truth.failed).sum();
    assert!(failed > 0);
    assert_eq!(report.quality.failed_allocations, failed);
    Ok(())
}

/// Check that a tracer of one process and a tracer with `--all` count the same.
#[test]
fn two_tracers_of_one_process_agree() -> Result<()> {
    let all = Run::new("both", &[])?;
    let program = all.program("older")?;
    let mut target = Child::spawn(&mut Command::new(program))?;
    let pid = ready_pid(&target.line()?)?;
    let here = Heaptrace::tracing()?;
    let mut tracer = here.start_record(&["--exact", "--pid", &pid.to_string()])?;
    here.wait_attached(&mut tracer, pid)?;
    target.go()?;
    let truths = truths(&target.wait()?.success()?.stdout)?;
    let reports = [here.finish(tracer)?.report, all.report()?];
    for report in &reports {
        report.check_nothing_lost()?;
        for truth in &truths {
            truth.matches(&report.truth(Some(truth.pid)))?;
        }
    }
    Ok(())
}

/// Check that a tracer that was stopped counts the events that it lost to four busy processes, and reports no leaks
/// because of them.
#[test]
fn a_stopped_tracer_counts_losses() -> Result<()> {
    let traced = Run::new("flood", &["--ring-size", "256KiB"])?;
    let program = traced.program("flood")?;
    traced.tracer.signal(libc::SIGSTOP)?;
    let mut floods = Vec::new();
    for _ in 0..4 {
        floods.push(Child::spawn(&mut Command::new(&program))?);
    }
    // Time is the point: the ring fills while the tracer is stopped.
    thread::sleep(Duration::from_secs(2));
    traced.tracer.signal(libc::SIGCONT)?;
    let mut all = Vec::new();
    for flood in floods {
        all.extend(truths(&flood.wait()?.success()?.stdout)?);
    }
    let report = traced.end()?.report;
    let lost = report.lost();
    assert!(lost > 0, "256 KiB held it all");
    let allocations: u64 = all.iter().map(|truth| truth.allocations).sum();
    let seen = report.truth(None);
    assert!(
        seen.allocations < allocations && seen.allocations + lost >= allocations,
        "{} seen and {lost} lost of {allocations}",
        seen.allocations
    );
    for truth in &all {
        truth.has_no_false_leak(&report.truth(Some(truth.pid)))?;
    }
    Ok(())
}

/// Check that a killed tracer with `--all` leaves a readable file and running processes.
#[test]
fn a_killed_tracer_of_all_harms_no_process() -> Result<()> {
    let traced = Run::new("killed", &["--interval", "100ms"])?;
    let mut target = Child::spawn(&mut Command::new(traced.program("forever")?))?;
    let pid = ready_pid(&target.line()?)?;
    let Run { here, tracer, .. } = traced;
    here.wait_recorded(pid, 100)?;
    send(i32::try_from(tracer.pid())?, libc::SIGKILL)?;
    tracer.wait()?;
    target.go()?;
    let truth = truths(&target.wait()?.success()?.stdout)?.remove(0);
    let seen = here.report()?.truth(Some(pid));
    assert!(
        (100..=truth.allocations).contains(&seen.allocations),
        "{seen:?} of {truth:?}"
    );
    Ok(())
}
