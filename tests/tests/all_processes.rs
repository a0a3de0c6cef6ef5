//! Tests of `record --all`: every process of the machine is traced, also one that starts later.
//!
//! Other processes run on the machine as well, such as this suite's other tests. No assertion depends on them, and events
//! lost under their load are allowed for.

use anyhow::Result;
use heaptrace_tests::{Child, Heaptrace, Mode, c, ready_pid, run, truths};

/// Check that a process that ran before and one that starts later are both traced, each with its own
/// counts, and that the tracer does not trace itself.
#[test]
fn all_processes_are_traced() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let mut old = Child::spawn(&mut c("forever")?.command())?;
    let old_pid = ready_pid(&old.line()?)?;
    let mut tracer = here.start_record(&["--all", "--from-birth"])?;
    let tracer_pid = tracer.pid();
    here.wait_attached(&mut tracer, old_pid)?;

    let ended = run(&mut c("hooks")?.command())?.success()?;
    let truth = truths(&ended.stdout)?.remove(0);
    here.wait_recorded(old_pid, 1)?;
    tracer.signal(libc::SIGINT)?;
    let recording = here.finish(tracer)?;
    assert_eq!(recording.ended.code(), 0, "{}", recording.ended.stderr);
    let report = &recording.report;

    assert!(report.truth(Some(old_pid)).allocations > 0);
    assert_eq!(report.mode, Mode::Exact);
    let seen = report.process(truth.pid)?.totals;
    truth.matches_without(&seen, report.lost())?;
    assert!(
        report.images(tracer_pid).is_empty(),
        "the tracer traces itself"
    );
    old.go()?;
    old.wait()?.success()?;
    Ok(())
}
