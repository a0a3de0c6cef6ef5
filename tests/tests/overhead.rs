//! What tracing may cost: who pays too much is probed in turns, nobody else is, and it is said.
//!
//! Speeds are per processor time of the process itself, so that the machine's load matters little; margins are wide.
//! Others run on the machine as well, and may be probed in turns, too: nothing here depends on it.

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use heaptrace_tests::{Child, Heaptrace, Holdings, Process, c, lap, ready_pid, run, truths};

/// Blocks that `churn` has at any time.
const BLOCKS: u64 = 1000;

fn named(here: &Heaptrace, fixture: &str, name: &str) -> Result<PathBuf> {
    let copy = here.path(name);
    run(Command::new("cp").arg(c(fixture)?.path).arg(&copy))?.success()?;
    Ok(copy)
}

/// Allocations in a second of the process's own time, for so long from now on.
fn speed(churn: &mut Child, time: Duration) -> Result<f64> {
    churn.go()?;
    churn.line()?;
    thread::sleep(time);
    churn.go()?;
    lap(&churn.line()?)
}

/// Starts `churn` under a name, and lets it run for a while.
fn churning(here: &Heaptrace, name: &str) -> Result<(Child, u32)> {
    let mut churn = Child::spawn(&mut Command::new(named(here, "churn", name)?))?;
    let pid = ready_pid(&churn.line()?)?;
    Ok((churn, pid))
}

/// Fails unless a process is in the report as one that was probed in turns, for a small part of the time.
fn is_in_turns(process: &Process, run_ns: u64) -> Result<()> {
    let turns = process
        .probed_in_turns
        .as_ref()
        .context("not probed in turns")?;
    let since = run_ns - turns.from_ns;
    assert!(turns.from_ns > 1_500_000_000, "{turns:?}");
    assert!(
        turns.unprobed_ns > since / 2 && turns.unprobed_ns <= since,
        "{turns:?} of {run_ns}"
    );
    assert!(turns.overhead_percent > 20.0, "{turns:?}");
    Ok(())
}

/// Check that of a process that does nothing but allocate and one that rarely does, only the first is probed in turns, goes
/// at least half as fast as untraced by its own time, many times as fast as without a limit, and is named; and
/// that the other's counts are whole.
#[test]
fn who_pays_too_much_is_probed_in_turns() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let (mut churn, _) = churning(&here, "ht-pay-before")?;
    let untraced = speed(&mut churn, Duration::from_secs(1))?;
    drop(churn);

    let unlimited = Heaptrace::tracing()?;
    let options = ["--all", "--comm", "ht-pay-*", "--max-overhead", "off"];
    let mut tracer = unlimited.start_record(&options)?;
    unlimited.wait_recording(&mut tracer)?;
    let (mut churn, pid) = churning(&unlimited, "ht-pay-all")?;
    thread::sleep(Duration::from_secs(3));
    let slow = speed(&mut churn, Duration::from_secs(1))?;
    tracer.signal(libc::SIGINT)?;
    let report = unlimited.finish(tracer)?.report;
    assert!(report.process(pid)?.probed_in_turns.is_none());
    drop(churn);

    let options = ["--all", "--comm", "ht-pay-*", "--max-overhead", "5"];
    let mut tracer = here.start_record(&options)?;
    here.wait_recording(&mut tracer)?;
    let program = named(&here, "churn", "ht-pay-quiet")?;
    let mut quiet = Child::spawn(Command::new(program).arg("1000"))?;
    let quiet_pid = ready_pid(&quiet.line()?)?;
    let (mut churn, pid) = churning(&here, "ht-pay-hot")?;
    thread::sleep(Duration::from_secs(5));
    let governed = speed(&mut churn, Duration::from_secs(6))?;
    let counts = truths(&quiet.wait()?.success()?.stdout)?.remove(0);
    tracer.signal(libc::SIGINT)?;
    let recording = here.finish(tracer)?;
    drop(churn);

    println!(
        "allocations a second: {untraced:.0} untraced, {slow:.0} all the time, {governed:.0} in turns"
    );
    let (said, report) = (recording.ended.stderr, recording.report);
    assert!(
        said.contains(&format!("ht-pay-hot[{pid}] is traced on a duty cycle")),
        "{said}"
    );
    is_in_turns(report.process(pid)?, report.duration_ns)?;
    // Another tracer of the whole machine, without a limit, would be what is measured here.
    assert!(slow < untraced / 4.0, "it costs nothing: {untraced} {slow}");
    assert!(governed > untraced / 2.0, "{untraced} {governed}");
    assert!(governed > slow * 4.0, "{slow} {governed}");
    let quiet = report.process(quiet_pid)?;
    assert!(quiet.probed_in_turns.is_none(), "{quiet:?}");
    assert!(report.quality.probe_hit_ns > 100, "{:?}", report.quality);
    if quiet.lost == 0 && report.lost() == 0 {
        counts.matches(&quiet.totals)?;
    }
    Ok(())
}

/// Check that what a process in turns has live is between what is certain and that with what is uncertain, after many
/// turns in each of which all of its blocks were replaced unseen; and that the totals add up.
#[test]
fn what_was_not_seen_is_no_leak() -> Result<()> {
    for is_all in [true, false] {
        let here = Heaptrace::tracing()?;
        let (mut churn, pid) = churning(&here, "ht-unseen")?;
        let pid_text = pid.to_string();
        let target: &[&str] = if is_all {
            &["--all", "--comm", "ht-unseen"]
        } else {
            &["--pid", &pid_text]
        };
        let options = [target, &["--max-overhead", "10"]].concat();
        let mut tracer = here.start_record(&options)?;
        here.wait_recording(&mut tracer)?;
        thread::sleep(Duration::from_secs(12));
        assert!(speed(&mut churn, Duration::from_millis(100))? > 0.0);
        tracer.signal(libc::SIGINT)?;
        let report = here.finish(tracer)?.report;
        let counts = truths(&churn.wait()?.success()?.stdout)?.remove(0);
        assert_eq!(counts.live_allocations, BLOCKS);

        let process = report.process(pid)?;
        is_in_turns(process, report.duration_ns)?;
        let totals = &process.totals;
        assert!(totals.allocations > 10 * BLOCKS, "{totals:?}");
        assert!(totals.allocations < counts.allocations);
        let most = totals.live_allocations + totals.uncertain_allocations;
        // A call that was under way at a turn is seen half.
        assert!(totals.live_allocations <= BLOCKS + 1, "{totals:?}");
        assert!(
            most <= BLOCKS + BLOCKS / 4,
            "stale blocks add up: {totals:?}"
        );
        // At a turn, frees are seen for some calls longer than allocations.
        assert!(most >= BLOCKS / 2, "{totals:?}");
        assert!(totals.peak_live_bytes <= BLOCKS * 128, "{totals:?}");
    }
    Ok(())
}

/// Check that nothing is left of a run that ends, by a signal or by its death, while it leaves a process alone.
#[test]
fn nothing_is_left_of_turns() -> Result<()> {
    for signal in [libc::SIGINT, libc::SIGKILL] {
        let here = Heaptrace::tracing()?;
        let mut tracer =
            here.start_record(&["--all", "--comm", "ht-left", "--max-overhead", "1"])?;
        here.wait_recording(&mut tracer)?;
        let (mut churn, pid) = churning(&here, "ht-left")?;
        let mut waited = 0;
        while !tracer
            .stderr()
            .contains(&format!("[{pid}] is traced on a duty cycle"))
        {
            anyhow::ensure!(waited < 300, "never probed in turns: {}", tracer.stderr());
            waited += 1;
            thread::sleep(Duration::from_millis(100));
        }
        let holdings = Holdings::of(tracer.pid())?;
        thread::sleep(Duration::from_millis(200));
        tracer.signal(signal)?;
        tracer.wait()?;
        holdings.are_gone()?;
        // It goes on, and nothing costs it anything any more.
        assert!(speed(&mut churn, Duration::from_millis(300))? > 3e6);
        churn.wait()?.success()?;
        assert!(here.report()?.totals.allocations > 0);
    }
    Ok(())
}
