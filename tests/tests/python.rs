//! Python frames in stacks, compared with the interpreter's own, and what can go wrong with them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{
    Agreement, Frame, Heaptrace, Report, Site, c_linked, python_agreement, python_stack,
    require_tool, run,
};

/// The system's own interpreter, which Debian's packages need.
fn python() -> Result<&'static OsStr> {
    require_tool("python3", "python3")?;
    Ok(OsStr::new("/usr/bin/python3"))
}

fn check(agreement: &Agreement) -> Result<()> {
    // A stack is another one while a frame is being built, or when a signal comes in between.
    agreement.check(2_000, 0.99)
}

/// Check that functions, files and lines are those of the interpreter's own stacks: of calls, objects, generators, coroutines,
/// callbacks from C, threads, forked children, and code that was made while the program ran.
#[test]
fn python_stacks_are_the_interpreters_own() -> Result<()> {
    check(&python_agreement(&[python()?], &["--exact"], 5)?)
}

/// Check the same with an allocator that takes every object's memory from `malloc`, and on the fast path.
#[test]
fn python_stacks_are_whole_on_the_fast_path() -> Result<()> {
    let interpreter = [
        OsStr::new("env"),
        OsStr::new("PYTHONMALLOC=malloc"),
        python()?,
    ];
    check(&python_agreement(&interpreter, &["--exact", "--fast"], 5)?)
}

/// Records a script.
fn record(script: &str, options: &[&str]) -> Result<Report> {
    let command = [python()?, OsStr::new("-c"), OsStr::new(script)];
    let recording = Heaptrace::tracing()?.record(options, &command)?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    recording.report.check_nothing_lost()?;
    Ok(recording.report)
}

/// Allocations and bytes by the innermost Python function and its line.
fn by_innermost(report: &Report) -> BTreeMap<(String, u32), (u64, u64)> {
    let mut sums = BTreeMap::<_, (u64, u64)>::new();
    for site in &report.sites {
        if let Some((function, _, line)) = python_stack(site).into_iter().next() {
            let sum = sums.entry((function, line)).or_default();
            sum.0 += site.totals.allocations;
            sum.1 += site.totals.allocated_bytes;
        }
    }
    sums
}

/// Check that two functions that are called in turn have their own bytes, exactly: their stacks of machine code are the same.
#[test]
fn functions_called_in_turn_have_their_own_bytes() -> Result<()> {
    let script = "
def f():
    bytearray(200_000)

def g():
    bytearray(300_000)
    bytearray(400_000)

for _ in range(500):
    f()
    g()
";
    let report = record(script, &["--exact", "--min-size", "100000"])?;
    let sums = by_innermost(&report);
    let of = |function: &str, line| sums.get(&(function.to_owned(), line)).copied();
    assert_eq!(of("f", 3), Some((500, 500 * 200_001)));
    assert_eq!(of("g", 6), Some((500, 500 * 300_001)));
    assert_eq!(of("g", 7), Some((500, 500 * 400_001)));
    Ok(())
}

/// Check that a thread which has given the interpreter's lock away still has its Python frames: the library allocates while it
/// derives a key.
#[test]
fn frames_are_there_without_the_interpreters_lock() -> Result<()> {
    let script = "
import hashlib, threading

def derived():
    hashlib.scrypt(b'secret', salt=b'salt', n=2048, r=8, p=1)

threads = [threading.Thread(target=derived) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
";
    let report = record(script, &["--exact"])?;
    let is_large =
        |site: &&Site| site.totals.allocated_bytes >= 1_000_000 * site.totals.allocations;
    let large = report.sites.iter().filter(is_large);
    let stacks: Vec<_> = large.map(python_stack).collect();
    let derived = stacks.iter().filter(|stack| {
        let functions: Vec<_> = stack.iter().map(|frame| frame.0.as_str()).collect();
        functions
            == [
                "derived",
                "Thread.run",
                "Thread._bootstrap_inner",
                "Thread._bootstrap",
            ]
    });
    ensure!(derived.count() >= 1, "{stacks:?}");
    Ok(())
}

/// Check that Python frames stand before the interpreter's frame that ran them, also in stacks that are completed when the table of a
/// library is there, which was loaded just before its first call.
#[test]
fn frames_have_their_places_in_late_stacks() -> Result<()> {
    const LIBRARIES: u64 = 4;
    require_tool("gcc", "gcc")?;
    let here = Heaptrace::tracing()?;
    let script = here.path("late.py");
    fs::write(
        &script,
        "
import ctypes, sys
def inner(path):
    ctypes.CDLL(path).take(300_000)
def outer(path):
    inner(path)
bytearray(400_000)
for path in sys.argv[1:]:
    outer(path)
",
    )?;
    let mut command = vec![python()?.to_owned(), script.into()];
    for number in 0..LIBRARIES {
        let source = here.path(&format!("late{number}.c"));
        let library = here.path(&format!("late{number}.so"));
        // No two have the same table, and it takes longer to build than Python needs to call.
        let functions = 80_000 + number;
        let code = format!(
            "#include <stdlib.h>
             asm(\".text\\n.rept {functions}\\n.cfi_startproc\\npush %rax\\n.cfi_adjust_cfa_offset 8\\n\"
                 \"pop %rax\\n.cfi_adjust_cfa_offset -8\\nret\\n.cfi_endproc\\n.endr\");
             void take(unsigned long size) {{
                 volatile char room[{number} * 64 + 8];
                 room[0] = 1;
                 *(volatile char *)malloc(size) = room[0];
             }}"
        );
        fs::write(&source, code)?;
        let options = ["-shared", "-fPIC", "-O2", "-fomit-frame-pointer", "-o"];
        run(Command::new("gcc").args(options).args([&library, &source]))?.success()?;
        command.push(library.into());
    }
    let options = ["--exact", "--min-size", "300000", "--no-table-cache"];
    // Whether a table is late depends on which process the machine runs first.
    for _ in 0..10 {
        let recording = here.record(&options, &command)?;
        ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
        let report = &recording.report;
        report.check_nothing_lost()?;
        check_late_stacks(report)?;
        if report.quality.noted.get("stacks_walked_late") > Some(&0) {
            return Ok(());
        }
    }
    anyhow::bail!("no stack was walked late");
}

/// Checks the stacks of the calls through libraries, as far as they are complete.
fn check_late_stacks(report: &Report) -> Result<()> {
    for site in &report.sites {
        let name = |frame: &Frame| frame.function.clone().unwrap_or_default();
        let functions: Vec<_> = site.stack.iter().map(name).collect();
        // On a busy machine, a table can be later than the tracer waits.
        if site.stack_end != "complete" || !functions.iter().any(|it| it == "take") {
            continue;
        }
        // The loop's own frames are left out where those that it ran stand.
        let python = ["inner", "outer", "<module>", "PyEval_EvalCode"];
        ensure!(
            functions.windows(4).any(|four| four == python),
            "{functions:?}"
        );
    }
    Ok(())
}

/// Check that a script which ends at once has its names: they are sent with the stacks.
#[test]
fn short_scripts_have_names() -> Result<()> {
    for _ in 0..5 {
        let report = record(
            "def short():\n  bytearray(500_000)\nshort()",
            &["--exact", "--min-size", "400000"],
        )?;
        let site = report
            .sites
            .iter()
            .find(|site| !python_stack(site).is_empty());
        let stack = python_stack(site.context("there is no Python frame")?);
        let expected = [("short", 2), ("<module>", 3)]
            .map(|(function, line)| (function.to_owned(), "<string>".to_owned(), line));
        assert_eq!(stack, expected);
    }
    Ok(())
}

/// Check that a name, a path and a table of lines that are longer than what is sent do no harm, and say that they were cut.
#[test]
fn long_names_are_cut() -> Result<()> {
    let script = "
name = 'n' * 3000
body = ''.join(f'    x = {n}\\n' for n in range(20000))
code = f'def {name}():\\n    bytearray(600_000)\\n{body}    bytearray(700_000)\\n{name}()\\n'
exec(compile(code, '/p' * 2000, 'exec'))
";
    let report = record(
        script,
        &["--exact", "--min-size", "600000", "--max-size", "700001"],
    )?;
    let names: Vec<_> = report
        .sites
        .iter()
        .filter_map(|site| python_stack(site).into_iter().next())
        .filter(|(function, ..)| function.starts_with("nnn"))
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
    for (function, file, line) in names {
        assert!(function.ends_with("nn…") && function.len() < 200);
        assert!(file.ends_with('…') && file.len() < 300);
        // The second one is beyond the part of the table that is sent.
        assert!(line == 2 || line == 1, "{line}");
    }
    Ok(())
}

/// Check that a program which claims to be Python, and whose frames have no end and lead nowhere, is counted exactly, and harms nothing.
#[test]
fn false_frames_do_no_harm() -> Result<()> {
    let program = c_linked("false_python", "false_python", "cc", &["-rdynamic"])?;
    let recording = Heaptrace::tracing()?.record(&["--exact"], &[&program])?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    let (report, truth) = (&recording.report, recording.truth("main")?);
    report.check_nothing_lost()?;
    assert_eq!(report.totals.allocations, truth.allocations);
    assert_eq!(report.totals.allocated_bytes, truth.allocated_bytes);
    let stacks: Vec<_> = report.sites.iter().map(python_stack).collect();
    // It was taken for Python.
    let longest = stacks.iter().map(Vec::len).max();
    assert_eq!(longest, Some(128));
    for (function, file, _) in stacks.iter().flatten() {
        assert!(function.len() < 1000 && file.len() < 1000);
    }
    Ok(())
}

/// Check that Python frames are seen in a process that has run for a while, in the sampled mode that is the default there.
#[test]
fn a_running_process_has_python_frames() -> Result<()> {
    let script = "
import time

def serve():
    return [bytearray(100_000) for _ in range(10)]

end = time.monotonic() + 60
print('ready', flush=True)
while time.monotonic() < end:
    serve()
    time.sleep(0.001)
";
    let mut command = Command::new(python()?);
    command.args(["-c", script]);
    let server = heaptrace_tests::Child::spawn(&mut command)?;
    std::thread::sleep(std::time::Duration::from_millis(500));
    let heaptrace = Heaptrace::tracing()?;
    let pid = server.pid().to_string();
    let recorder = heaptrace.start_record(&[
        "--pid",
        pid.as_str(),
        "--sample",
        "512KiB",
        "--duration",
        "2s",
    ])?;
    let recording = heaptrace.finish(recorder)?;
    let functions = by_innermost(&recording.report);
    let bytes = |function: &str| -> u64 {
        let of_it = functions
            .iter()
            .filter(|((name, _), _)| name.starts_with(function));
        of_it.map(|(_, (_, bytes))| bytes).sum()
    };
    let served = bytes("serve");
    ensure!(
        served * 10 >= recording.report.totals.allocated_bytes * 9,
        "{functions:?}"
    );
    Ok(())
}
