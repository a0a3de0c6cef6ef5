//! Tests of the fast path in processes that another tracer traces as well: uprobes that are not heaptrace's, and gdb.
//!
//! Each fixture is traced from before its `main` on, so its estimates can be compared with its own counts.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{
    Child, Ended, ForeignProbe, Heaptrace, MINUTE, Report, Truth, agree, c_library_of_machine,
    c_moved, code_mappings, ready_pid, require_tool, run, truths, until,
};

/// The options of every run, before the process id. With the first one, the tracer says when a process has been moved.
const FAST: [&str; 5] = ["-v", "--fast", "--sample", "64KiB", "--pid"];

/// The mean of the samples.
const MEAN: u64 = 64 << 10;

/// The rounds of a fixture: enough for small errors, and for more than a second if every call traps.
const ROUNDS: Option<&str> = Some("400000");

/// A target, its tracer, and where the tracer writes.
struct Traced {
    here: Heaptrace,
    target: Child,
    tracer: Child,
}

impl Traced {
    /// Starts a fixture that waits as `moved.h` says. `first` is done with its process id before it is traced.
    fn start(
        name: &str,
        argument: Option<&str>,
        wait: &str,
        first: impl FnOnce(u32) -> Result<()>,
    ) -> Result<Self> {
        let here = Heaptrace::tracing()?;
        let mut command = c_moved(name, &format!("{name}-moved"), "cc", &[])?.command();
        command.args(argument).env("WAIT_UNTIL_MOVED", wait);
        // Else most slots have no address yet when the process is moved.
        command.env("LD_BIND_NOW", "1");
        let target = Child::spawn(&mut command)?;
        let pid = target.pid();
        first(pid)?;
        let pid_text = pid.to_string();
        let mut tracer = here.start_record(&[&FAST[..], &[&pid_text]].concat())?;
        if wait == "go" {
            here.wait_attached(&mut tracer, pid)?;
        }
        Ok(Self {
            here,
            target,
            tracer,
        })
    }

    /// Waits for the end of both, and compares the estimates with the target's counts.
    fn finish(self) -> Result<(Ended, Report, Truth)> {
        let pid = self.target.pid();
        let ended = self.target.wait()?.success()?;
        let truth = truths(&ended.stdout)?.pop().context("no truth")?;
        let recording = self.here.finish(self.tracer)?;
        ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
        recording.report.check_nothing_lost()?;
        agree(&truth, &recording.report.truth(Some(pid)))?;
        Ok((recording.ended, recording.report, truth))
    }
}

/// Sets another tracer's probe in the C library.
fn probe(pid: u32, function: &str) -> Result<ForeignProbe> {
    ForeignProbe::set(pid, &c_library_of_machine()?, function)
}

/// Fails unless hits of `malloc` are about as many as its samples. A `realloc` without a block counts here as `malloc`.
fn are_those_of_samples(hits: u64, truth: &Truth) -> Result<()> {
    let (calls, bytes) = truth.hooks["truth_malloc"];
    println!("{hits} hits, {} samples, {calls} calls", bytes / MEAN);
    ensure!(hits * 2 > bytes / MEAN && hits * 4 < calls);
    Ok(())
}

/// Check that a process with another tracer's probe at the beginning of `free` is not moved, that this is said, that it is
/// traced all the same, and that the other tracer sees every call.
#[test]
fn a_probe_in_a_beginning_prevents_the_move() -> Result<()> {
    let mut foreign = None;
    let mut traced = Traced::start("sampled", ROUNDS, "go", |pid| {
        foreign = Some(probe(pid, "free")?);
        Ok(())
    })?;
    traced.target.go()?;
    let (ended, report, truth) = traced.finish()?;
    let hits = foreign.context("no probe")?.hits()?;
    assert_eq!(report.moved(), (0, 1));
    let said = ended
        .stderr
        .contains("the beginning of its free can't be copied");
    ensure!(said, "{}", ended.stderr);
    // A quarter of the calls with a block are those of realloc.
    println!("{hits} hits, {} frees, also by realloc", truth.frees);
    ensure!(hits * 100 > truth.frees * 70 && hits * 100 < truth.frees * 80);
    Ok(())
}

/// Check that a process with another tracer's probe at the very instruction of heaptrace's own is moved, that its numbers are
/// right, and that the other tracer sees the calls that reach the function.
#[test]
fn a_probe_at_the_same_instruction_sees_what_reaches_it() -> Result<()> {
    let mut foreign = None;
    let mut traced = Traced::start("sampled", ROUNDS, "both", |pid| {
        foreign = Some(probe(pid, "malloc")?);
        Ok(())
    })?;
    let foreign = foreign.context("no probe")?;
    assert_eq!(traced.target.line()?, "moved");
    let before = foreign.hits()?;
    traced.target.go()?;
    let (_, report, truth) = traced.finish()?;
    assert_eq!(report.moved(), (1, 0));
    ensure!(before > 500, "{before} hits before it was moved");
    are_those_of_samples(foreign.hits()? - before, &truth)
}

/// Check that probes that another tracer sets after the move, at the beginnings of `malloc` and `free`, see the calls that
/// reach these, that the numbers stay right, and that the target ends well.
#[test]
fn probes_after_the_move_see_what_reaches_them() -> Result<()> {
    let mut traced = Traced::start("sampled", ROUNDS, "both", |_| Ok(()))?;
    assert_eq!(traced.target.line()?, "moved");
    let pid = traced.target.pid();
    let (malloc, free) = (probe(pid, "malloc")?, probe(pid, "free")?);
    traced.target.go()?;
    let (_, report, truth) = traced.finish()?;
    assert_eq!(report.moved(), (1, 0));
    are_those_of_samples(malloc.hits()?, &truth)?;
    let frees = free.hits()?;
    println!("{frees} hits of free, in truth {}", truth.frees);
    ensure!(frees > 0 && frees * 4 < truth.frees);
    Ok(())
}

/// gdb, attached to a process, with these commands.
fn gdb(pid: u32, commands: &[&str]) -> Result<Command> {
    let mut gdb = Command::new(require_tool("gdb", "gdb")?);
    gdb.args(["-nx", "-batch", "-p", &pid.to_string()]);
    for command in ["set debuginfod enabled off", "set pagination off"]
        .iter()
        .chain(commands)
    {
        gdb.args(["-ex", command]);
    }
    Ok(gdb)
}

/// Check that a process in a debugger is not moved, that this is said, that it is traced all the same, and that it is moved when
/// the debugger has left it.
#[test]
fn a_process_in_a_debugger_is_not_moved() -> Result<()> {
    let mut debugger = None;
    let mut traced = Traced::start("busy", None, "go", |pid| {
        debugger = Some(Child::spawn(&mut gdb(pid, &["continue", "detach"])?)?);
        until("gdb to continue the process", MINUTE, || {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
            let is_traced = !status.contains("TracerPid:\t0");
            Ok(is_traced && status.contains("State:\tS"))
        })
    })?;
    let pid = traced.target.pid();
    traced.target.go()?;
    until("the refusal", MINUTE, || {
        let said = traced.tracer.stderr();
        let mut lines = said.lines().filter(|it| it.contains("can't be moved"));
        Ok(lines.any(|it| it.contains("traces it, as a debugger does")))
    })?;
    assert_eq!(code_mappings(pid)?, 0);
    let debugger = debugger.context("no debugger")?;
    // As a user does it by Ctrl-C.
    debugger.signal(libc::SIGINT)?;
    debugger.wait()?;
    until("the move", MINUTE, || {
        let said = traced.tracer.stderr();
        Ok(said.contains("is on the fast path from now on"))
    })?;
    traced.target.go()?;
    let (_, report, _) = traced.finish()?;
    assert_eq!(report.moved(), (1, 0));
    Ok(())
}

/// Check that a debugger can attach to a moved process, show its stacks, stop it at a call, step through the fast path's code
/// and leave, and that the process's numbers are right.
#[test]
fn a_debugger_can_attach_to_a_moved_process() -> Result<()> {
    let mut traced = Traced::start("busy", None, "1", |_| Ok(()))?;
    let pid = ready_pid(&traced.target.line()?)?;
    // A debugger does not see past a sampled call, whose return address the kernel has replaced.
    until("a stack of a thread", MINUTE, || {
        let stacks = run(&mut gdb(pid, &["thread apply all bt", "detach"])?)?.success()?;
        Ok(stacks.stdout.contains(" work ("))
    })?;
    let commands = [
        "break truth_malloc",
        "continue",
        "delete",
        // Into the linkage stub, through the code behind it, and into `malloc`.
        "python for _ in range(60): gdb.execute('stepi', to_string=True); print('AT', gdb.selected_frame().pc())",
        "info proc mappings",
        "detach",
    ];
    let stepped = run(&mut gdb(pid, &commands)?)?.success()?;
    let code = stepped
        .stdout
        .lines()
        .find(|line| line.contains("heaptrace-fast") && line.contains("r-xp"));
    let mut bounds = code.context("no mapping of the code")?.split_whitespace();
    let mut bound = || {
        let digits = bounds.next().and_then(|it| it.strip_prefix("0x"));
        u64::from_str_radix(digits.unwrap_or_default(), 16)
    };
    let code = bound()?..bound()?;
    let places = stepped
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("AT ")?.parse::<u64>().ok());
    let steps = places.filter(|it| code.contains(it)).count();
    println!("{steps} steps in the fast path's code");
    ensure!(steps > 2, "{}", stepped.stdout);
    traced.target.go()?;
    let (_, report, _) = traced.finish()?;
    assert_eq!(report.moved(), (1, 0));
    Ok(())
}
