//! Tests of `record --reachable`: ten programs whose leaks LeakSanitizer finds, a sample, another tracer, and a kill in the middle.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{Child, Heaptrace, MINUTE, c, run, send, target, until, workspace};
use serde_json::Value;

/// The programs of the fixture.
const CASES: u32 = 10;

/// The blocks that the last one loses.
const LOST: u64 = 656;

/// By function: blocks and bytes to which nothing points, and those to which only such blocks point.
type Leaks = BTreeMap<String, [u64; 4]>;

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn found(here: &Heaptrace) -> Result<Value> {
    let data = here.data();
    let data = data.to_str().context("an odd path")?;
    let ended = here.run(&["leaks", data, "--format", "json"])?.success()?;
    Ok(serde_json::from_str(&ended.stdout)?)
}

/// The search of a process.
fn search(found: &Value, pid: u32) -> Option<&Value> {
    let searches = found["unreachable"]["searches"].as_array()?;
    searches.iter().find(|it| it["pid"] == pid)
}

/// Waits until the recording that goes on has what is expected.
fn searched(here: &Heaptrace, what: &str, is_there: impl Fn(&Value) -> bool) -> Result<()> {
    until(what, MINUTE, || Ok(is_there(&found(here)?)))
}

/// What nothing points to in a process.
fn unreachable(found: &Value, pid: u32) -> Leaks {
    let mut leaks = Leaks::new();
    let sites = found["unreachable"]["sites"].as_array();
    let sites = sites.into_iter().flatten();
    for site in sites.filter(|it| it["pid"] == pid) {
        let function = site["stack"][0]["function"].as_str().unwrap_or("?");
        let sums = leaks.entry(function.to_owned()).or_default();
        let names = [
            "direct_blocks",
            "direct_bytes",
            "indirect_blocks",
            "indirect_bytes",
        ];
        for (sum, name) in sums.iter_mut().zip(names) {
            *sum += number(&site[name]);
        }
    }
    leaks
}

/// What LeakSanitizer reports, in lines such as `Direct leak of 64 byte(s) in 1 object(s) allocated from:`.
fn checked(report: &str) -> Leaks {
    let mut leaks = Leaks::new();
    let mut sums = None;
    for line in report.lines().map(str::trim) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|it| it.parse::<u64>().ok());
        match words.as_slice() {
            [kind, "leak", "of", ..] => {
                sums = number(3)
                    .zip(number(6))
                    .map(|sums| (*kind == "Direct", sums));
            }
            ["#1", _, "in", function, ..] => {
                if let Some((is_direct, (bytes, blocks))) = sums.take() {
                    let of = leaks.entry((*function).to_owned()).or_default();
                    let first = if is_direct { 0 } else { 2 };
                    of[first] += blocks;
                    of[first + 1] += bytes;
                }
            }
            _ => {}
        }
    }
    leaks
}

/// The processes of the cases, from lines `CASE PID`.
fn processes(recorder: &mut Child) -> Result<BTreeMap<u32, u32>> {
    let mut processes = BTreeMap::new();
    for _ in 0..CASES {
        let line = recorder.line()?;
        let (case, pid) = line.trim().split_once(' ').context("an odd line")?;
        processes.insert(case.parse()?, pid.parse()?);
    }
    Ok(processes)
}

/// Starts to record all cases. Returns their processes, too.
fn start(here: &Heaptrace, options: &[&str]) -> Result<(Child, BTreeMap<u32, u32>)> {
    let fixture = c("reachable")?;
    let program = fixture.path.to_str().context("an odd path")?.to_owned();
    let command = ["--reachable", "--mmap", "--", &program, "all"];
    let mut recorder = here.start_record(&[options, &command].concat())?;
    let processes = processes(&mut recorder)?;
    Ok((recorder, processes))
}

/// Check that what is found in ten programs is, to the block and to the byte, what LeakSanitizer finds in each function, directly and
/// indirectly, that the memory of small ones was read while they were stopped, for how long is said, and that the text names functions.
#[test]
fn ten_programs_agree_with_leak_sanitizer() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let source = workspace().join("tests/fixtures/c/reachable.c");
    let program: PathBuf = target().join("reachable-checked");
    run(Command::new("gcc")
        .args([
            "-std=gnu11",
            "-O1",
            "-g",
            "-DCHECKED",
            "-fsanitize=leak",
            "-fno-builtin",
            "-fno-omit-frame-pointer",
            "-fno-optimize-sibling-calls",
            "-pthread",
            "-o",
        ])
        .arg(&program)
        .arg(&source))?
    .success()?;
    let (mut recorder, processes) = start(&here, &[])?;
    recorder.signal(libc::SIGUSR2)?;
    searched(&here, "all searches", |found| {
        processes.values().all(|pid| search(found, *pid).is_some())
    })?;
    recorder.go()?;
    let recording = here.finish(recorder)?;
    recording.report.check_nothing_lost()?;
    let found = found(&here)?;
    let mut leaking = 0;
    for (case, pid) in processes {
        let report = run(Command::new(&program).arg(case.to_string()))?.stderr;
        let expected = checked(&report);
        assert_eq!(unreachable(&found, pid), expected, "case {case}\n{report}");
        leaking += usize::from(!expected.is_empty());
        let search = search(&found, pid).with_context(|| format!("no search: {found}"))?;
        // On a busy machine, the largest one has more than can be read in time, and is read before and afterwards, too.
        if case != CASES {
            assert_eq!(search["is_whole"], true, "case {case}: {search}");
            assert_eq!(search["memory_bytes"], search["read_while_stopped_bytes"]);
        }
        assert_eq!(search["has_all_blocks"], true, "case {case}: {search}");
        let stopped = Duration::from_nanos(number(&search["stopped_ns"]));
        assert!(!stopped.is_zero() && stopped < Duration::from_secs(2));
        assert_eq!(
            number(&search["threads"]),
            if case == 7 { 4 } else { 1 },
            "{search}"
        );
    }
    // In one, nothing leaks.
    assert_eq!(leaking, CASES as usize - 1);

    let data = here.data();
    let data = data.to_str().context("an odd path")?;
    let text = here.run(&["leaks", data])?.success()?.stdout;
    let part = text.split_once("Unreachable, ").context("no heading")?.1;
    assert!(part.contains("1. 1.4 MiB  lose_large"), "{text}");
    assert!(part.contains("nothing points"), "{text}");
    Ok(())
}

/// Lets a process be traced by this thread, as a debugger does, or no longer.
fn trace(pid: u32, begin: bool) -> Result<()> {
    let request = match begin {
        true => libc::PTRACE_SEIZE,
        false => libc::PTRACE_DETACH,
    };
    if !begin {
        // SAFETY: a plain system call. Only a stopped process can be let go.
        unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, pid, 0, 0) };
        // SAFETY: the result is not asked for.
        unsafe { libc::waitpid(pid as i32, std::ptr::null_mut(), libc::__WALL) };
    }
    // SAFETY: a plain system call.
    let result = unsafe { libc::ptrace(request, pid, 0, 0) };
    ensure!(result == 0, "ptrace: {}", std::io::Error::last_os_error());
    Ok(())
}

/// Check that a sample finds about as much as there is, with errors and with what it can't tell; and that a process that has another tracer
/// is not searched, which is said, but is when that has gone.
#[test]
fn samples_and_other_tracers_are_told() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let (mut recorder, processes) = start(&here, &["--sample", "256", "--interval", "200ms"])?;
    let pid = processes[&CASES];
    trace(pid, true)?;
    recorder.signal(libc::SIGUSR2)?;
    searched(&here, "a refusal", |found| {
        let refused = search(found, pid).and_then(|it| it["refused"].as_str());
        refused.is_some_and(|it| it.contains("traces it already"))
    })?;
    trace(pid, false)?;
    recorder.signal(libc::SIGUSR2)?;
    searched(&here, "a search", |found| {
        search(found, pid).is_some_and(|it| it["refused"].is_null())
    })?;
    recorder.go()?;
    here.finish(recorder)?.report.check_nothing_lost()?;
    let found = found(&here)?;
    let search = search(&found, pid).context("no search")?;
    assert_eq!(search["has_all_blocks"], false, "{search}");
    assert!(search["refused"].is_null(), "{search}");
    let sites = found["unreachable"]["sites"].as_array();
    let mut sites = sites.into_iter().flatten();
    let site = sites
        .find(|it| it["pid"] == pid)
        .with_context(|| format!("nothing found: {found}"))?;
    assert_eq!(site["stack"][0]["function"], "lose_node");
    let (blocks, error) = (number(&site["blocks"]), number(&site["blocks_error"]));
    assert!(error > 0 && blocks.abs_diff(LOST) <= 6 * error, "{site}");
    assert!(number(&site["bytes_low"]) <= number(&site["bytes"]));
    assert!(number(&site["bytes"]) <= number(&site["bytes_high"]));
    let data = here.data();
    let data = data.to_str().context("an odd path")?;
    let text = here.run(&["leaks", data])?.success()?.stdout;
    assert!(text.contains("the least that"), "{text}");
    Ok(())
}

/// The state of a process, as a letter, and its tracer.
fn state(pid: u32) -> Result<(char, u32)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(str::trim).map(str::to_owned)
    };
    let state = field("State:").and_then(|it| it.chars().next());
    let tracer = field("TracerPid:").and_then(|it| it.parse().ok());
    state.zip(tracer).context("an odd status")
}

/// Check that a process goes on if heaptrace is killed while the process is stopped.
#[test]
fn a_kill_lets_the_process_go_on() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let (mut recorder, processes) = start(&here, &[])?;
    let pid = processes[&CASES];
    let mut was_stopped = false;
    until("a stop", MINUTE, || {
        recorder.signal(libc::SIGUSR2)?;
        for _ in 0..20_000 {
            if state(pid)?.0 == 't' {
                send(recorder.pid() as i32, libc::SIGKILL)?;
                was_stopped = true;
                break;
            }
        }
        Ok(was_stopped)
    })?;
    until("the process", MINUTE, || Ok(state(pid)? == ('S', 0)))?;
    for pid in processes.values() {
        until("all of them", MINUTE, || Ok(state(*pid)? == ('S', 0)))?;
    }
    // The fixture ends its processes when it reads a line or the end of its input.
    recorder.go()?;
    recorder.wait()?;
    until("their end", MINUTE, || {
        Ok(processes.values().all(|pid| state(*pid).is_err()))
    })
}
