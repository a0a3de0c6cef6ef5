//! What is left of a run, after every way in which it can end: nothing. By the kernel's own lists of
//! programs, maps, links and uprobe events, and by the breakpoints in the target.

use std::ffi::OsStr;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use heaptrace_tests::{Child, Heaptrace, Holdings, c, definitions, ready_pid, send, truths};

/// A run ends by `end`, which gets the tracer and its target; then nothing of it is left, and the
/// target, if it goes on, reports as ever.
fn leaves_nothing(
    options: &[&str],
    end: impl FnOnce(&Child, &mut Child, &Holdings) -> Result<()>,
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
    end(&tracer, &mut target, &holdings)?;
    tracer.wait()?;
    holdings.are_gone()?;
    assert!(here.report()?.totals.allocations > 0);
    if target.running()? {
        target.go()?;
        assert_eq!(truths(&target.wait()?.success()?.stdout)?.len(), 1);
    }
    Ok(())
}

/// Check that nothing is left after a run that ends with its time.
#[test]
fn after_its_time() -> Result<()> {
    leaves_nothing(&["--duration", "2s"], |_, _, _| Ok(()))
}

/// Check that nothing is left after SIGINT, SIGTERM and SIGHUP.
#[test]
fn after_signals() -> Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        leaves_nothing(&[], |tracer, _, _| tracer.signal(signal))?;
    }
    Ok(())
}

/// Check that nothing is left after SIGKILL of the tracer.
#[test]
fn after_its_death() -> Result<()> {
    leaves_nothing(&["--interval", "100ms"], |tracer, _, _| {
        thread::sleep(Duration::from_millis(500));
        tracer.signal(libc::SIGKILL)
    })
}

/// Check that a run goes on without its guardian, and leaves nothing at its end.
#[test]
fn after_the_death_of_the_guardian() -> Result<()> {
    leaves_nothing(&[], |tracer, _, holdings| {
        send(i32::try_from(holdings.guardian)?, libc::SIGKILL)?;
        thread::sleep(Duration::from_millis(500));
        tracer.signal(libc::SIGINT)
    })
}

/// Check that nothing is left after the end of the target.
#[test]
fn after_the_end_of_the_target() -> Result<()> {
    leaves_nothing(&[], |_, target, _| target.signal(libc::SIGKILL))
}

/// Check that a command that outlives its killed tracer keeps nothing of it alive.
#[test]
fn with_a_command_that_goes_on() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let forever = c("forever")?;
    let mut tracer = here.start_record(&[OsStr::new("--"), forever.path.as_os_str()])?;
    let pid = ready_pid(&tracer.line()?)?;
    let holdings = Holdings::of(tracer.pid())?;
    tracer.signal(libc::SIGKILL)?;
    while tracer.running()? {
        thread::sleep(Duration::from_millis(10));
    }
    holdings.are_gone()?;
    // Throws an error if it is not there any more.
    send(i32::try_from(pid)?, 0)
}

/// Check that nothing is left after runs of the whole machine, one ended in order and one killed.
#[test]
fn after_a_run_of_all() -> Result<()> {
    for signal in [libc::SIGINT, libc::SIGKILL] {
        let here = Heaptrace::tracing()?;
        let mut tracer = here.start_record(&["--all", "--comm", "ht-nobody"])?;
        here.wait_recording(&mut tracer)?;
        let holdings = Holdings::of(tracer.pid())?;
        tracer.signal(signal)?;
        tracer.wait()?;
        holdings.are_gone()?;
    }
    Ok(())
}

/// Check that what a tracer and its guardian leave, killed together, goes with the next run.
#[test]
fn after_the_death_of_both() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let mut tracer = here.start_record(&["--all", "--comm", "ht-nobody"])?;
    here.wait_recording(&mut tracer)?;
    let holdings = Holdings::of(tracer.pid())?;
    // The guardian first: it must not see the tracer's end.
    send(i32::try_from(holdings.guardian)?, libc::SIGKILL)?;
    tracer.signal(libc::SIGKILL)?;
    tracer.wait()?;
    Heaptrace::tracing()?.record_all(&["true"])?;
    holdings.are_gone()
}

/// Check that a start that fails leaves nothing: a command that can't be run, a file that can't be written.
#[test]
fn after_failed_starts() -> Result<()> {
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
        assert_eq!(definitions(pid)?, Vec::<String>::new(), "{arguments:?}");
    }
    Ok(())
}
