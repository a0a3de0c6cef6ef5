//! Unusual surroundings: a restricted `/proc`, missing mounts, a stepping clock, a locked kernel.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;
use heaptrace_tests::{Child, Ended, Heaptrace, c, c_hostile, heaptrace, run, truths};

use crate::ready;

/// Runs a script in namespaces of its own, with heaptrace and a data file as `$1` and `$2`.
fn apart(here: &Heaptrace, namespaces: &[&str], script: &str) -> Result<Ended> {
    let mut command = Command::new("unshare");
    command.args(namespaces).args(["sh", "-c", script, "sh"]);
    run(command.arg(heaptrace()?).arg(here.data()))
}

/// Check that heaptrace traces a process that `/proc` hides from other users (`hidepid`).
#[test]
fn hidden_processes_are_traced() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let (mut target, pid) = ready(&c("older")?, &[])?;
    let script = format!(
        "mount -t proc -o hidepid=2 proc /proc && exec \"$1\" record --exact -o \"$2\" --pid {pid}"
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script, "sh"]);
    let mut tracer = Child::spawn(command.arg(heaptrace()?).arg(here.data()))?;
    here.wait_attached(&mut tracer, pid)?;
    target.go()?;
    let truth = truths(&target.wait()?.success()?.stdout)?;
    let report = here.finish(tracer)?.report;
    report.check_nothing_lost()?;
    for truth in truth {
        truth.matches(&report.process(truth.pid)?.totals)?;
    }
    Ok(())
}

/// Check that a run in another pid namespace is refused, and that the doctor says why. There, no process has the id by
/// which the kernel's events name it.
#[test]
fn another_pid_namespace_is_refused() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let namespaces = ["-p", "-f", "--mount-proc"];
    let ended =
        apart(&here, &namespaces, "exec \"$1\" record -o \"$2\" -- true")?.fails_clearly()?;
    assert!(ended.stderr.contains("pid namespace"), "{}", ended.stderr);
    let ended = apart(&here, &namespaces, "exec \"$1\" doctor")?;
    let line = ended
        .stdout
        .lines()
        .find(|line| line.contains("pid namespace"));
    assert!(
        line.is_some_and(|line| line.starts_with("not ok")),
        "{}",
        ended.stdout
    );
    Ok(())
}

/// Check that if no tracefs is mounted, heaptrace mounts its own, and that the error names the right that it lacks
/// for that.
#[test]
fn a_missing_tracefs_is_no_obstacle() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let hidden = "for it in /sys/kernel/tracing /sys/kernel/debug; do mount -t tmpfs tmpfs $it || exit 9; done; ";
    let record = "\"$1\" record --exact -o \"$2\" -- ls /";
    apart(&here, &["-m"], &format!("{hidden}exec {record}"))?.success()?;
    assert!(here.report()?.totals.allocations > 0);
    let without = "setpriv --bounding-set -sys_admin --inh-caps -sys_admin";
    let ended =
        apart(&here, &["-m"], &format!("{hidden}exec {without} {record}"))?.fails_clearly()?;
    assert!(ended.stderr.contains("CAP_SYS_ADMIN"), "{}", ended.stderr);
    Ok(())
}

/// Check that a run on a locked-down kernel is refused with that reason. Only a reboot can lock a kernel, so the test
/// replaces the file that shows its state.
#[test]
fn lockdown_is_reported() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let locked = "mount -t tmpfs tmpfs /sys/kernel/security && \
                  echo 'none integrity [confidentiality]' > /sys/kernel/security/lockdown && ";
    let ended = apart(
        &here,
        &["-m"],
        &format!("{locked} exec \"$1\" record -o \"$2\" -- true"),
    )?;
    let ended = ended.fails_clearly()?;
    assert!(
        ended.stderr.contains("lockdown=integrity"),
        "{}",
        ended.stderr
    );
    Ok(())
}

/// Check that a wall clock that steps by an hour at each reading changes no number: durations come from the clock that
/// can't be set.
#[test]
fn a_stepping_clock_changes_nothing() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let clock = c_hostile("stepping", "stepping.so", &["-O1"])?;
    let (mut target, pid) = ready(&c("older")?, &[])?;
    let mut command = here.command(&["record", "--exact", "--interval", "50ms", "-o"])?;
    command.arg(here.data()).args(["--pid", &pid.to_string()]);
    command.env("LD_PRELOAD", &clock.path);
    let begin = Instant::now();
    let mut tracer = Child::spawn(&mut command)?;
    here.wait_attached(&mut tracer, pid)?;
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    target.go()?;
    let truth = truths(&target.wait()?.success()?.stdout)?;
    let recording = here.finish(tracer)?;
    let report = &recording.report;
    report.check_nothing_lost()?;
    for truth in truth {
        truth.matches(&report.process(truth.pid)?.totals)?;
    }
    let took = Duration::from_nanos(report.duration_ns);
    assert!(took <= begin.elapsed(), "{took:?}");
    Ok(())
}
