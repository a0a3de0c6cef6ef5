//! Tests of `record --all` without `--from-birth`: it reaches processes one by one, when they have run for a second.
//!
//! Only these tests use the names, so that no other process of the machine is in their reports.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{
    Child, Group, Heaptrace, MINUTE, Process, Recording, c, code_mappings, ready_pid, run, truths,
    until,
};

/// Younger processes are not traced.
const AGE_NS: u64 = 1_000_000_000;

/// Time in which a tracer on a loaded machine notices what a process has done. Nothing outside shows it.
const NOTICE: Duration = Duration::from_secs(3);

/// A tracer that attaches sets breakpoints in every process for a moment, which another one's test would take for its own.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A copy of a fixture under another name.
fn named(here: &Heaptrace, fixture: &str, name: &str) -> Result<PathBuf> {
    let copy = here.path(name);
    run(Command::new("cp").arg(c(fixture)?.path).arg(&copy))?.success()?;
    Ok(copy)
}

/// Starts to record all processes of a name.
fn recording(here: &Heaptrace, name: &str) -> Result<Child> {
    let mut tracer = here.start_record(&["--all", "--comm", name])?;
    here.wait_recording(&mut tracer)?;
    Ok(tracer)
}

fn stop(here: &Heaptrace, tracer: Child) -> Result<Recording> {
    tracer.signal(libc::SIGINT)?;
    let recording = here.finish(tracer)?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    recording.report.check_nothing_lost()?;
    Ok(recording)
}

/// Fails unless a process was traced from some time on, which was at least a second after its start, until its end.
fn was_reached(process: &Process, run_ns: u64) -> Result<()> {
    let traced = process.traced.context("not reached")?;
    assert!(traced.age_ns >= AGE_NS, "{traced:?}");
    assert!(traced.from_ns > 0 && traced.from_ns < traced.to_ns);
    assert!(traced.to_ns < run_ns, "{traced:?} of {run_ns}");
    assert!(process.memory.resident_before > 0, "{process:?}");
    Ok(())
}

/// Check that a process is traced when it has run for a second, with the exact counts from then on, and that the report says
/// from when to when.
#[test]
fn processes_are_reached_after_a_second() -> Result<()> {
    let _alone = alone();
    let here = Heaptrace::tracing()?;
    let mut tracer = recording(&here, "ht-one-flood")?;
    let program = named(&here, "flood", "ht-one-flood")?;
    let mut target = Child::spawn(Command::new(program).arg("wait"))?;
    let pid = ready_pid(&target.line()?)?;
    here.wait_attached(&mut tracer, pid)?;
    target.go()?;
    let truth = truths(&target.wait()?.success()?.stdout)?.remove(0);
    let recording = stop(&here, tracer)?;
    let process = recording.report.process(pid)?;
    truth.matches(&process.totals)?;
    was_reached(process, recording.report.duration_ns)
}

/// Check that processes that end sooner are not in the report, and are counted by name and control group.
#[test]
fn short_lived_processes_are_counted() -> Result<()> {
    let _alone = alone();
    const HERE: u64 = 20;
    const THERE: u64 = 5;
    let here = Heaptrace::tracing()?;
    let program = named(&here, "hooks", "ht-one-brief")?;
    let group = Group::unified("brief")?;
    let tracer = recording(&here, "ht-one-brief")?;
    for _ in 0..HERE {
        run(&mut Command::new(&program))?.success()?;
    }
    let script = format!(
        "echo $$ > {}/cgroup.procs && exec {}",
        group.folder().display(),
        program.display()
    );
    for _ in 0..THERE {
        run(Command::new("sh").args(["-c", &script]))?.success()?;
    }
    let report = stop(&here, tracer)?.report;
    assert!(report.processes.is_empty(), "{:?}", report.processes);
    let ended = &report.quality.short_lived;
    let of = |is_there: bool| {
        let name = group.name().unwrap_or_default();
        let mut found = ended.iter().filter(|it| (it.cgroup == name) == is_there);
        found.next().map_or(0, |it| {
            assert_eq!(it.command, "ht-one-brief");
            assert!(it.lived_ns > 0 && it.lived_ns < it.processes * AGE_NS);
            it.processes
        })
    };
    assert_eq!((of(false), of(true)), (HERE, THERE), "{ended:?}");
    let noted = report.quality.noted.get("processes_short_lived");
    assert_eq!(noted, Some(&(HERE + THERE)));
    Ok(())
}

/// Check that a program that a reached process runs is traced from its first allocation on, that its short-lived children are
/// not, and that these don't disturb its counts.
#[test]
fn programs_of_reached_processes_are_whole() -> Result<()> {
    let _alone = alone();
    let here = Heaptrace::tracing()?;
    let program = named(&here, "forks", "ht-one-forks")?;
    let tracer = recording(&here, "ht-one-forks")?;
    let becomes = format!("sleep {}; exec {}", NOTICE.as_secs(), program.display());
    let said = run(Command::new("sh").args(["-c", &becomes]))?.success()?;
    let truths = truths(&said.stdout)?;
    let parent = truths.iter().find(|truth| truth.role == "main");
    let parent = parent.context("no parent")?;
    let report = stop(&here, tracer)?.report;
    let [process] = &report.processes[..] else {
        anyhow::bail!("{:?}", report.processes);
    };
    assert_eq!(process.pid, parent.pid);
    parent.matches(&process.totals)?;
    let traced = process.traced.context("not reached")?;
    assert_eq!((traced.age_ns, process.memory.resident_before), (0, 0));
    let ended: u64 = report
        .quality
        .short_lived
        .iter()
        .map(|it| it.processes)
        .sum();
    assert_eq!(ended, truths.len() as u64 - 1);
    Ok(())
}

/// Check that a process is still traced when its first thread ends, or when another one runs a program: the probes that came
/// with the first thread go with it.
#[test]
fn processes_are_reached_without_their_first_thread() -> Result<()> {
    let _alone = alone();
    for turn in ["end", "exec"] {
        let here = Heaptrace::tracing()?;
        let name = format!("ht-one-{turn}");
        let mut tracer = recording(&here, &name)?;
        let program = named(&here, "turned", &name)?;
        let mut command = Command::new(&program);
        command.arg(turn);
        if turn == "exec" {
            command.arg(&program).arg("end");
        }
        let mut target = Child::spawn(&mut command)?;
        let pid = ready_pid(&target.line()?)?;
        here.wait_attached(&mut tracer, pid)?;
        target.go()?;
        if turn == "exec" {
            assert_eq!(ready_pid(&target.line()?)?, pid);
            here.wait_attached(&mut tracer, pid)?;
            target.go()?;
        }
        thread::sleep(NOTICE);
        target.go()?;
        let truth = truths(&target.wait()?.success()?.stdout)?.remove(0);
        let report = stop(&here, tracer)?.report;
        truth.matches(&report.truth(Some(pid)))?;
    }
    Ok(())
}

/// Check that a process whose first thread had ended before it was reached is traced.
#[test]
fn leaderless_processes_are_reached() -> Result<()> {
    let _alone = alone();
    let here = Heaptrace::tracing()?;
    let tracer = recording(&here, "ht-one-leader")?;
    let program = named(&here, "leaderless", "ht-one-leader")?;
    let mut target = Child::spawn(Command::new(program).arg("wait"))?;
    let pid = ready_pid(&target.line()?)?;
    thread::sleep(NOTICE);
    target.go()?;
    let truth = truths(&target.wait()?.success()?.stdout)?.remove(0);
    let report = stop(&here, tracer)?.report;
    truth.matches(&report.truth(Some(pid)))
}

/// Check that heaptrace's process that writes into others (`--fast`) is not traced, however long it runs, and that those that it
/// starts are not counted.
#[test]
fn the_installer_is_not_traced() -> Result<()> {
    let _alone = alone();
    let here = Heaptrace::tracing()?;
    let program = named(&here, "busy", "ht-one-busy")?;
    let names = ["--comm", "ht-one-busy", "--comm", "heaptrace-fast"];
    let mut tracer = here.start_record(&[&["--all", "--fast"][..], &names].concat())?;
    here.wait_recording(&mut tracer)?;
    // By then it would be reached, as any other process.
    thread::sleep(NOTICE);
    let mut target = Child::spawn(&mut Command::new(program))?;
    let pid = ready_pid(&target.line()?)?;
    let before = code_mappings(pid)?;
    until("the target is moved", MINUTE, || {
        Ok(code_mappings(pid)? > before)
    })?;
    target.go()?;
    target.wait()?.success()?;
    let report = stop(&here, tracer)?.report;
    let traced: Vec<_> = report.processes.iter().map(|it| it.pid).collect();
    assert_eq!(traced, [pid], "{:?}", report.processes);
    let ended = &report.quality.short_lived;
    assert!(ended.is_empty(), "{ended:?}");
    Ok(())
}

/// Check that a process is reached with all of its allocators at once, also with one that no process had before. (Once, that one came a
/// tenth of a second later, and nothing limited meanwhile what the others cost the process.)
#[test]
fn all_allocators_are_reached_at_once() -> Result<()> {
    /// Turns of a millisecond that one of the allocators may lack.
    const MOST_MISSED: u64 = 60;
    let _alone = alone();
    let here = Heaptrace::tracing()?;
    let program = named(&here, "two_allocators", "ht-one-two")?;
    let tracer = recording(&here, "ht-one-two")?;
    let library = here.path("allocator.so");
    fs::copy("/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4", &library)?;
    let mut target = Child::spawn(Command::new(program).arg(&library))?;
    let pid = ready_pid(&target.line()?)?;
    target.wait()?.success()?;
    let report = stop(&here, tracer)?.report;
    was_reached(report.process(pid)?, report.duration_ns)?;
    let calls_of = |size| {
        let sites = report.sites.iter().map(|site| &site.totals);
        let own = sites.filter(|it| it.allocated_bytes == size * it.allocations);
        own.map(|it| it.allocations).sum::<u64>()
    };
    let [of_c, of_other] = [1000, 2000].map(calls_of);
    ensure!(of_c > 1000, "{of_c}, {of_other}");
    ensure!(of_c.abs_diff(of_other) <= MOST_MISSED, "{of_c}, {of_other}");
    Ok(())
}
