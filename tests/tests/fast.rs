//! Tests of the fast path: its numbers, and that no target is harmed.

#[path = "fast/stubs.rs"]
mod stubs;

use std::ffi::OsStr;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{
    Child, Fixture, Heaptrace, MINUTE, Mode, Recording, Report, agrees, c, c_plugin, code_mappings,
    ready_pid, send, truths, until,
};

/// The mean of most runs: enough samples for small errors, and few enough that the target is fast.
const MEAN: &str = "64KiB";

/// How many processes a run has moved. None may have been refused.
fn moved(report: &Report) -> u64 {
    let (moved, refused) = report.moved();
    assert_eq!(refused, 0);
    moved
}

/// Check that a command that is moved to the fast path has the numbers that it counts itself, with whole stacks, and that
/// it makes many times more calls than without.
#[test]
fn estimates_of_a_command_agree_with_the_truth() -> Result<()> {
    let run = |options: &[&str]| {
        let here = Heaptrace::tracing()?;
        here.record(options, &[c("busy")?.as_ref(), OsStr::new("3000")])
    };
    let fast = run(&["--fast", "--sample", MEAN])?;
    ensure!(fast.ended.code() == 0, "{}", fast.ended.stderr);
    fast.report.check_nothing_lost()?;
    assert_eq!(fast.report.mode, Mode::Sampled { mean_bytes: 65_536 });
    assert_eq!(moved(&fast.report), 1);
    fast.agrees_with("main")?;
    let quality = &fast.report.quality;
    let stacks = quality.stacks_complete + quality.stacks_broken + quality.stacks_truncated;
    assert!(quality.stacks_complete * 100 >= stacks * 99, "{quality:?}");
    let slow = run(&["--sample", MEAN])?;
    let (fast, slow) = (fast.truth("main")?, slow.truth("main")?);
    println!(
        "{} calls, without --fast {}",
        fast.allocations, slow.allocations
    );
    assert!(fast.allocations > 3 * slow.allocations);
    Ok(())
}

/// Check that a process that might be ended for a system call of the fast path is not moved, that this is said, and that it
/// is traced all the same.
#[test]
fn a_process_with_a_filter_is_not_moved() -> Result<()> {
    let busy = c("busy")?;
    let command = [busy.as_ref(), OsStr::new("3000"), OsStr::new("filtered")];
    let recording = Heaptrace::tracing()?.record(&["--fast", "--sample", MEAN], &command)?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    assert_eq!(recording.report.moved(), (0, 1));
    let said = recording.ended.stderr.contains("seccomp");
    ensure!(said, "{}", recording.ended.stderr);
    recording.agrees_with("main")
}

/// Check that the numbers hold with other allocators, some of whose functions end in tail calls of others.
#[test]
fn other_allocators_are_moved() -> Result<()> {
    for library in [
        "libjemalloc.so.2",
        "libtcmalloc_minimal.so.4",
        "libmimalloc.so.2.0",
    ] {
        let preload = format!("LD_PRELOAD={library}");
        let (env, busy) = (OsStr::new("env"), c("busy")?);
        let command = [env, OsStr::new(&preload), busy.as_ref(), OsStr::new("2000")];
        let recording = Heaptrace::tracing()?.record(&["--fast", "--sample", MEAN], &command)?;
        ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
        println!("{library}");
        assert_eq!(moved(&recording.report), 1);
        recording.agrees_with("main")?;
    }
    Ok(())
}

/// Check that forked children of a moved process are on the fast path, and have the numbers that they count themselves.
#[test]
fn children_are_on_the_fast_path() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let busy = c("busy")?;
    let command = [busy.as_ref(), OsStr::new("1500"), OsStr::new("children")];
    let recording = here.record(&["--fast", "--sample", MEAN], &command)?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    assert_eq!(moved(&recording.report), 1);
    recording.agrees_with("main")?;
    let children: Vec<_> = recording
        .truths
        .iter()
        .filter(|it| it.role == "child")
        .collect();
    assert_eq!(children.len(), 3);
    for child in children {
        let process = recording
            .report
            .processes
            .iter()
            .find(|it| it.pid == child.pid);
        let totals = process.context("a child is missing")?.totals;
        let bytes = (totals.allocated_bytes, totals.allocated_bytes_error);
        agrees("bytes of a child", child.allocated_bytes, bytes.0, bytes.1)?;
    }
    Ok(())
}

/// Starts the fixture, and a tracer of it, and waits until the target is moved.
fn start_moved(here: &Heaptrace, options: &[&str]) -> Result<(Child, Child)> {
    start_moved_of(&c("busy")?, here, options)
}

/// The same with a variant of the fixture.
fn start_moved_of(fixture: &Fixture, here: &Heaptrace, options: &[&str]) -> Result<(Child, Child)> {
    let mut target = Child::spawn(&mut fixture.command())?;
    let pid = ready_pid(&target.line()?)?;
    let pid_text = pid.to_string();
    let mut arguments = vec!["--fast", "--sample", MEAN, "--pid", &pid_text];
    arguments.extend(options);
    let before = code_mappings(pid)?;
    let tracer = here.start_record(&arguments)?;
    until("the target is moved", MINUTE, || {
        Ok(code_mappings(pid)? > before)
    })?;
    Ok((target, tracer))
}

/// Records a process on the fast path for this time.
fn record_for(here: &Heaptrace, pid: &str, duration: &str) -> Result<Recording> {
    let options = [
        "--fast",
        "--sample",
        MEAN,
        "--pid",
        pid,
        "--duration",
        duration,
    ];
    here.finish(here.start_record(&options)?)
}

/// Fails if much is left of what a target allocated: a free that is not seen would leave its block. The fixture keeps about
/// 1 MiB, of which some was allocated before the run.
fn misses_no_free(report: &Report) -> Result<()> {
    let totals = &report.totals;
    println!("{totals:?}");
    ensure!(totals.unfreed_bytes() < (8 << 20) && totals.allocated_bytes > 64 << 20);
    Ok(())
}

/// Check that a running process is moved and put back, several times in a row, that it counts right all the while, and
/// that the next run of the same process finds the mapping of the last one.
#[test]
fn a_process_is_moved_and_put_back() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let (mut target, tracer) = start_moved(&here, &["--duration", "2s"])?;
    let pid = target.pid();
    let first = here.finish(tracer)?;
    assert_eq!(moved(&first.report), 1);
    for _ in 0..3 {
        let again = record_for(&here, &pid.to_string(), "1500ms")?;
        again.report.check_nothing_lost()?;
        assert_eq!(moved(&again.report), 1);
        assert!(again.report.quality.samples > 100);
    }
    assert_eq!(code_mappings(pid)?, 1);
    // Afterwards an exact run sees every call: no slot leads past its probes.
    let exact = here.start_record(&["--exact", "--pid", &pid.to_string(), "--duration", "1s"])?;
    let exact = here.finish(exact)?;
    let (calls, frees) = (exact.report.totals.allocations, exact.report.totals.frees);
    println!("{calls} calls and {frees} frees in an exact run");
    assert!(frees * 10 > calls * 9);
    target.go()?;
    assert_eq!(truths(&target.wait()?.success()?.stdout)?.len(), 1);
    Ok(())
}

/// Check that a target survives when heaptrace is killed, that its slots are put back by then, and that the next run moves
/// it again.
#[test]
fn a_killed_tracer_harms_no_target() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let (mut target, tracer) = start_moved(&here, &[])?;
    let pid = target.pid().to_string();
    tracer.signal(libc::SIGKILL)?;
    tracer.wait()?;
    for pause in [0, 30, 100, 200, 300, 500, 700] {
        let tracer = here.start_record(&["--fast", "--sample", MEAN, "--pid", &pid])?;
        std::thread::sleep(Duration::from_millis(300 + pause));
        tracer.signal(libc::SIGKILL)?;
        tracer.wait()?;
        ensure!(target.running()?, "the target has ended after {pause} ms");
    }
    let last = record_for(&here, &pid, "2s")?;
    assert_eq!(moved(&last.report), 1);
    target.go()?;
    assert_eq!(truths(&target.wait()?.success()?.stdout)?.len(), 1);
    Ok(())
}

/// The installer of a tracer of this process: it was forked from the tracer, and so has the same arguments.
fn installer_for(target: u32) -> Result<i32> {
    let target = format!("\0{target}\0");
    for entry in fs::read_dir("/proc")? {
        let folder = entry?.path();
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
        if read("comm") == "heaptrace-fast\n" && read("cmdline").contains(&target) {
            let pid = folder.file_name().context("no name")?;
            return Ok(pid.to_string_lossy().parse()?);
        }
    }
    anyhow::bail!("no installer")
}

/// Check that the slots stay as they are when heaptrace and its installer are killed together, that a run without `--fast`
/// warns of that, and that the next run with it puts them back, counts right, and uses the mapping again.
#[test]
fn a_killed_installer_is_made_up_for() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let (mut target, tracer) = start_moved(&here, &[])?;
    let (pid, pid_text) = (target.pid(), target.pid().to_string());
    // Slots are written soon after the code is mapped.
    std::thread::sleep(Duration::from_secs(1));
    send(installer_for(pid)?, libc::SIGKILL)?;
    tracer.signal(libc::SIGKILL)?;
    tracer.wait()?;
    let exact = |seconds| {
        let options = ["--exact", "--pid", &pid_text, "--duration", seconds];
        here.finish(here.start_record(&options)?)
    };
    let hidden = exact("1s")?;
    ensure!(
        hidden
            .ended
            .stderr
            .contains("run heaptrace with --fast once"),
        "{}",
        hidden.ended.stderr
    );
    let fast = record_for(&here, &pid_text, "2s")?;
    fast.report.check_nothing_lost()?;
    assert_eq!(moved(&fast.report), 1);
    misses_no_free(&fast.report)?;
    assert_eq!(code_mappings(pid)?, 1);
    let seen = exact("1s")?;
    ensure!(
        !seen.ended.stderr.contains("--fast"),
        "{}",
        seen.ended.stderr
    );
    let (calls, frees) = (seen.report.totals.allocations, seen.report.totals.frees);
    println!(
        "{calls} calls and {frees} frees; {} calls before",
        hidden.report.totals.allocations
    );
    assert!(frees * 10 > calls * 9);
    target.go()?;
    assert_eq!(truths(&target.wait()?.success()?.stdout)?.len(), 1);
    Ok(())
}

/// Check that a run does not take a process from another run that has moved it.
#[test]
fn a_second_run_leaves_the_first_alone() -> Result<()> {
    let (here, there) = (Heaptrace::tracing()?, Heaptrace::tracing()?);
    let (mut target, first) = start_moved(&here, &[])?;
    let pid = target.pid().to_string();
    // Slots are written soon after the code is mapped.
    std::thread::sleep(Duration::from_secs(1));
    let second = record_for(&there, &pid, "1s")?;
    assert_eq!(second.report.moved().0, 0);
    assert_eq!(code_mappings(target.pid())?, 1);
    first.signal(libc::SIGINT)?;
    let first = here.finish(first)?;
    first.report.check_nothing_lost()?;
    assert_eq!(moved(&first.report), 1);
    misses_no_free(&first.report)?;
    target.go()?;
    assert_eq!(truths(&target.wait()?.success()?.stdout)?.len(), 1);
    Ok(())
}

/// Check that a program that loads and unloads libraries, starts threads, forks and runs itself again is not disturbed by
/// runs that begin and end, or are killed, all the while: its blocks are whole, and none of its waits is interrupted.
#[test]
fn a_storm_harms_no_target() -> Result<()> {
    const ROUNDS: usize = 6;
    let library = c_plugin("storm_lib")?;
    let here = Heaptrace::tracing()?;
    let mut target = Child::spawn(c("storm")?.command().arg(&library.path))?;
    let pid = ready_pid(&target.line()?)?.to_string();
    let mut moved_in = 0;
    for round in 0..ROUNDS {
        let mut tracer = here.start_record(&["--fast", "--sample", MEAN, "--pid", &pid])?;
        here.wait_attached(&mut tracer, target.pid())?;
        std::thread::sleep(Duration::from_millis(150 * (round as u64 % 5)));
        if round % 3 == 2 {
            tracer.signal(libc::SIGKILL)?;
            tracer.wait()?;
        } else {
            tracer.signal(libc::SIGINT)?;
            let ended = tracer.wait()?;
            ended.no_panic()?;
            moved_in += usize::from(here.report().is_ok_and(|report| report.moved().0 > 0));
        }
        ensure!(target.running()?, "the target has ended in round {round}");
    }
    println!("moved in {moved_in} rounds");
    assert!(moved_in > 0);
    target.go()?;
    let ended = target.wait()?.success()?;
    assert_eq!(truths(&ended.stdout)?.len(), 1);
    Ok(())
}
