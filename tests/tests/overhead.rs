//! Tests of the limit of overhead: a process whose overhead is too high gets a duty cycle, no other does, and the report
//! names it.
//!
//! Speeds are per processor time of the process itself, so that the machine's load matters little. They are compared
//! with speeds of the same test, by wide margins. Other processes of the machine may have duty cycles, too.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use heaptrace::sys::process_time;
use heaptrace_tests::{
    Child, Heaptrace, Holdings, MINUTE, Process, c, code_mappings, lap, ready_pid, run, truths,
    until,
};

/// Lets one test run at a time: a run of the whole machine without a limit slows down the processes of every other test.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of blocks that `churn` has at any time.
const BLOCKS: u64 = 1000;

/// A copy of a fixture under another name.
fn named(here: &Heaptrace, fixture: &str, name: &str) -> Result<PathBuf> {
    let copy = here.path(name);
    run(Command::new("cp").arg(c(fixture)?.path).arg(&copy))?.success()?;
    Ok(copy)
}

/// The allocations per second of the process's own processor time, measured for so long. Time is the point.
fn speed(churn: &mut Child, time: Duration) -> Result<f64> {
    churn.go()?;
    churn.line()?;
    thread::sleep(time);
    churn.go()?;
    lap(&churn.line()?)
}

/// Starts `churn` under a name.
fn churning(here: &Heaptrace, name: &str) -> Result<(Child, u32)> {
    let mut churn = Child::spawn(&mut Command::new(named(here, "churn", name)?))?;
    let pid = ready_pid(&churn.line()?)?;
    Ok((churn, pid))
}

/// Waits until the report so far has a duty cycle of a process.
fn wait_for_duty_cycle(here: &Heaptrace, pid: u32) -> Result<()> {
    until("a duty cycle", MINUTE, || {
        let Ok(report) = here.report() else {
            return Ok(false);
        };
        let process = report.process(pid);
        Ok(process.is_ok_and(|process| process.probed_in_turns.is_some()))
    })
}

/// Fails unless the report has a duty cycle of a process, which paused it most of the time.
fn has_duty_cycle(process: &Process, run_ns: u64) -> Result<()> {
    let cycle = process.probed_in_turns.as_ref().context("no duty cycle")?;
    let since = run_ns - cycle.from_ns;
    assert!(cycle.from_ns > 100_000_000, "{cycle:?}");
    assert!(
        cycle.unprobed_ns > since / 2 && cycle.unprobed_ns <= since,
        "{cycle:?} of {run_ns}"
    );
    assert!(cycle.overhead_percent > 20.0, "{cycle:?}");
    assert!(
        cycle.reached_percent > 0.0 && cycle.reached_percent < cycle.overhead_percent,
        "{cycle:?}"
    );
    Ok(())
}

/// Check that a process that only allocates gets a duty cycle and is named, and then runs at least half as fast as
/// untraced and many times as fast as without a limit, while a process that rarely allocates is never paused, and has
/// exact counts if it is traced from birth.
#[test]
fn high_overhead_gets_a_duty_cycle() -> Result<()> {
    let _alone = alone();
    let here = Heaptrace::tracing()?;
    let (mut churn, _) = churning(&here, "ht-pay-before")?;
    let untraced = speed(&mut churn, Duration::from_secs(1))?;
    drop(churn);

    let unlimited = Heaptrace::tracing()?;
    let options = ["--all", "--comm", "ht-pay-*", "--max-overhead", "off"];
    let mut tracer = unlimited.start_record(&options)?;
    unlimited.wait_recording(&mut tracer)?;
    let (mut churn, pid) = churning(&unlimited, "ht-pay-all")?;
    unlimited.wait_recorded(pid, 1)?;
    let slow = speed(&mut churn, Duration::from_secs(1))?;
    tracer.signal(libc::SIGINT)?;
    let report = unlimited.finish(tracer)?.report;
    assert!(report.process(pid)?.probed_in_turns.is_none());
    let overhead = report.quality.overhead_percent;
    assert!(
        overhead > 20.0,
        "a report without a limit says {overhead} %"
    );
    drop(churn);

    for from_birth in [false, true] {
        let here = Heaptrace::tracing()?;
        let mut options = vec!["--all", "--comm", "ht-pay-*", "--max-overhead", "5"];
        options.extend(from_birth.then_some("--from-birth"));
        let mut tracer = here.start_record(&options)?;
        here.wait_recording(&mut tracer)?;
        let program = named(&here, "churn", "ht-pay-quiet")?;
        let mut quiet = Child::spawn(Command::new(program).arg("1000"))?;
        let quiet_pid = ready_pid(&quiet.line()?)?;
        let (mut churn, pid) = churning(&here, "ht-pay-hot")?;
        wait_for_duty_cycle(&here, pid)?;
        let governed = speed(&mut churn, Duration::from_secs(6))?;
        let counts = truths(&quiet.wait()?.success()?.stdout)?.remove(0);
        tracer.signal(libc::SIGINT)?;
        let recording = here.finish(tracer)?;
        drop(churn);

        println!(
            "allocations a second: {untraced:.0} untraced, {slow:.0} traced, {governed:.0} with a duty cycle"
        );
        let (said, report) = (recording.ended.stderr, recording.report);
        assert!(
            said.contains(&format!("ht-pay-hot[{pid}] is traced on a duty cycle")),
            "{said}"
        );
        has_duty_cycle(report.process(pid)?, report.duration_ns)?;
        // Another tracer of the whole machine, without a limit, would break these.
        assert!(slow < untraced / 4.0, "it costs nothing: {untraced} {slow}");
        assert!(governed > untraced / 2.0, "{untraced} {governed}");
        assert!(governed > slow * 4.0, "{slow} {governed}");
        let quiet = report.process(quiet_pid)?;
        assert!(quiet.probed_in_turns.is_none(), "{quiet:?}");
        assert!(report.quality.probe_hit_ns > 100, "{:?}", report.quality);
        if from_birth {
            counts.matches_without(&quiet.totals, quiet.lost + report.lost())?;
        }
    }
    Ok(())
}

/// The overhead, in percent, of three processes one after the other that use four seconds of processor time each, and only
/// allocate.
fn overhead_of_short_lives() -> Result<f64> {
    let here = Heaptrace::tracing()?;
    let mut tracer = here.start_record(&["--all", "--comm", "ht-brief", "--max-overhead", "5"])?;
    here.wait_recording(&mut tracer)?;
    let mut pids = Vec::new();
    for _ in 0..3 {
        let (mut churn, pid) = churning(&here, "ht-brief")?;
        pids.push(pid);
        churn.go()?;
        until("four seconds of processor time", MINUTE * 2, || {
            let used = process_time(pid).context("it has ended")?;
            Ok(used >= Duration::from_secs(4))
        })?;
        drop(churn);
    }
    tracer.signal(libc::SIGINT)?;
    let report = here.finish(tracer)?.report;
    for pid in pids {
        assert!(report.process(pid)?.totals.allocations > 0);
    }
    Ok(report.quality.overhead_percent)
}

/// Check that processes that live for some seconds, as compilers do, pay no more than the limit on the whole when each is
/// reached after one second: the governor is quick enough, and believes no hit to be cheap because it was not measured.
#[test]
fn short_lives_keep_to_the_limit() -> Result<()> {
    let _alone = alone();
    let mut seen = Vec::new();
    // A machine under load lets the governor wait now and then, but not always.
    for _ in 0..3 {
        let overhead = overhead_of_short_lives()?;
        println!("overhead: {overhead:.1} %");
        assert!(overhead > 0.2, "{overhead} %");
        if overhead < 6.0 {
            return Ok(());
        }
        seen.push(overhead);
    }
    panic!("the overhead is over the limit: {seen:?} %");
}

/// Check that the true number of live blocks is between the certain ones and the certain and uncertain ones together,
/// after many pauses in each of which the process replaced all of its blocks.
#[test]
fn pauses_make_no_leaks() -> Result<()> {
    let _alone = alone();
    for kind in ["one by one", "from birth", "one process"] {
        let here = Heaptrace::tracing()?;
        let (mut churn, pid) = churning(&here, "ht-unseen")?;
        let pid_text = pid.to_string();
        let target: &[&str] = match kind {
            "one by one" => &["--all", "--comm", "ht-unseen"],
            "from birth" => &["--all", "--from-birth", "--comm", "ht-unseen"],
            _ => &["--pid", &pid_text],
        };
        let options = [target, &["--max-overhead", "20"]].concat();
        let mut tracer = here.start_record(&options)?;
        here.wait_recording(&mut tracer)?;
        // Time is the point: several duty cycles, of two seconds each, after a first longer one.
        thread::sleep(Duration::from_secs(16));
        assert!(speed(&mut churn, Duration::from_millis(100))? > 0.0);
        tracer.signal(libc::SIGINT)?;
        let report = here.finish(tracer)?.report;
        let counts = truths(&churn.wait()?.success()?.stdout)?.remove(0);
        assert_eq!(counts.live_allocations, BLOCKS);

        let process = report.process(pid)?;
        has_duty_cycle(process, report.duration_ns)?;
        let totals = &process.totals;
        assert!(totals.allocations > 10 * BLOCKS, "{totals:?}");
        assert!(totals.allocations < counts.allocations);
        let most = totals.live_allocations + totals.uncertain_allocations;
        // A call that was running when a pause began is seen half.
        assert!(totals.live_allocations <= BLOCKS + 1, "{totals:?}");
        assert!(
            most <= BLOCKS + BLOCKS / 4,
            "stale blocks add up: {totals:?}"
        );
        assert!(totals.peak_live_bytes <= BLOCKS * 128, "{totals:?}");
    }
    Ok(())
}

/// Check that nothing is left of a run that ends, by SIGINT or SIGKILL, while a process is paused, and that the process
/// is then as fast as before.
#[test]
fn pauses_leave_nothing() -> Result<()> {
    let _alone = alone();
    for signal in [libc::SIGINT, libc::SIGKILL] {
        let here = Heaptrace::tracing()?;
        let (mut churn, pid) = churning(&here, "ht-left")?;
        let before = speed(&mut churn, Duration::from_millis(300))?;
        let mut tracer =
            here.start_record(&["--all", "--comm", "ht-left", "--max-overhead", "1"])?;
        here.wait_recording(&mut tracer)?;
        wait_for_duty_cycle(&here, pid)?;
        let holdings = Holdings::of(tracer.pid())?;
        tracer.signal(signal)?;
        tracer.wait()?;
        holdings.are_gone()?;
        let after = speed(&mut churn, Duration::from_millis(300))?;
        assert!(after > before / 2.0, "{before} before, {after} after");
        churn.wait()?.success()?;
        assert!(here.report()?.totals.allocations > 0);
    }
    Ok(())
}

/// Check that a process on the fast path has no more samples than the share of its processor time allows that they may take: 500 for
/// each second, or 100 a second. Without that limit it has ten thousand.
#[test]
fn samples_on_the_fast_path_keep_to_their_share() -> Result<()> {
    let _alone = alone();
    let here = Heaptrace::tracing()?;
    let mut target = Child::spawn(&mut c("busy")?.command())?;
    let pid = ready_pid(&target.line()?)?;
    let used = || process_time(pid).context("the process has ended");
    let (before, begin) = (used()?, Instant::now());
    let mut command = here.command(&["record", "--fast", "--no-mmap", "-o"])?;
    command.arg(here.data()).args(["--pid", &pid.to_string()]);
    let tracer = Child::spawn(&mut command)?;
    until(
        "the target is moved",
        MINUTE,
        || Ok(code_mappings(pid)? > 0),
    )?;
    // Time is the point: rates change every quarter of a second.
    thread::sleep(Duration::from_secs(4));
    let busy = (used()? - before).as_secs_f64() / begin.elapsed().as_secs_f64();
    tracer.signal(libc::SIGINT)?;
    let report = here.finish(tracer)?.report;
    target.go()?;
    target.wait()?.success()?;

    report.check_nothing_lost()?;
    let rates = &report.rates;
    let last = rates.iter().rfind(|it| it.pid == Some(pid));
    let last = last.or(rates.last()).context("no rate")?.mean_bytes;
    let seconds = report.duration_ns as f64 / 1e9;
    let samples = report.totals.allocated_bytes as f64 / seconds / last as f64;
    let most = (500.0 * busy).max(100.0);
    println!("{samples} samples a second at the last rate, {most} allowed");
    // Nor does the limit take nearly all of them.
    ensure!((most / 8.0..most * 2.0).contains(&samples));
    Ok(())
}
