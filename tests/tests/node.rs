//! Frames of JavaScript in stacks, compared with V8's own, and what can go wrong with them.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use anyhow::{Result, ensure};
use heaptrace_tests::{
    Agreement, Heaptrace, Report, c_linked, javascript_stack, node_agreement, require_tool,
};

/// The system's own Node.
fn node() -> Result<&'static OsStr> {
    require_tool("node", "nodejs")?;
    Ok(OsStr::new("node"))
}

fn check(agreement: &Agreement) -> Result<()> {
    agreement.check(500, 0.98)
}

/// Check that functions, files and lines are those of V8's own stacks: of calls, classes, callbacks of V8's own functions, generators,
/// asynchronous functions, timers, scripts that are made while the program runs, and threads.
#[test]
fn javascript_stacks_are_v8s_own() -> Result<()> {
    check(&node_agreement(
        &[node()?, OsStr::new("--jitless")],
        &["--exact"],
        5,
    )?)
}

/// Check the same in code that was compiled, and on the fast path.
#[test]
fn javascript_stacks_are_whole_on_the_fast_path() -> Result<()> {
    check(&node_agreement(&[node()?], &["--exact", "--fast"], 5)?)
}

/// Records a script.
fn record(script: &str, options: &[&str]) -> Result<Report> {
    let command = [node()?, OsStr::new("-e"), OsStr::new(script)];
    let recording = Heaptrace::tracing()?.record(options, &command)?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    recording.report.check_nothing_lost()?;
    Ok(recording.report)
}

/// Check that two functions that are called in turn by the interpreter have their own bytes, exactly: their stacks of machine code are the
/// same. So it is with a function that is compiled while the program runs.
#[test]
fn functions_called_in_turn_have_their_own_bytes() -> Result<()> {
    let script = "
function f() { Buffer.allocUnsafeSlow(200000); }
function g() { Buffer.allocUnsafeSlow(300000); }
function both() { f(); g(); }
for (let i = 0; i < 2000; i += 1) both();
";
    let report = record(script, &["--exact", "--min-size", "200000"])?;
    let mut sums = BTreeMap::<_, (u64, u64)>::new();
    for site in &report.sites {
        let mut stack = javascript_stack(site).into_iter();
        // Node's own functions allocate for them.
        let found = stack.find(|(_, file, _)| !file.starts_with("node:"));
        let sum = sums
            .entry(found.map(|(function, _, _)| function))
            .or_default();
        sum.0 += site.totals.allocations;
        sum.1 += site.totals.allocated_bytes;
    }
    let of = |function: &str| sums.get(&Some(function.to_owned())).copied();
    assert_eq!(of("f"), Some((2000, 2000 * 200_000)), "{sums:?}");
    assert_eq!(of("g"), Some((2000, 2000 * 300_000)), "{sums:?}");
    Ok(())
}

/// Check that stacks which come before the table of Node is there have their frames of JavaScript when it is, as in the first run of a script
/// that a shell starts, however long the table takes: two functions that are called in turn have their own bytes there, too.
#[test]
fn javascript_stacks_are_completed_late() -> Result<()> {
    let heaptrace = Heaptrace::tracing()?;
    let script = heaptrace.path("late.js");
    let calls = "
function f() { Buffer.allocUnsafeSlow(200000); }
function g() { Buffer.allocUnsafeSlow(300000); }
const cell = new Int32Array(new SharedArrayBuffer(4));
for (let i = 0; i < 300; i += 1) { f(); g(); Atomics.wait(cell, 0, 0, 10); }
";
    std::fs::write(&script, calls)?;
    let (node, path) = (node()?, script.display());
    let shell = format!("{} {path}; true", node.display());
    let options = [
        "--exact",
        "--min-size",
        "200000",
        "--no-mmap",
        "--no-table-cache",
    ];
    let command = ["sh", "-c", &shell].map(OsStr::new);
    let recording = heaptrace.record(&options, &command)?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    let report = &recording.report;
    report.check_nothing_lost()?;
    let late = report.quality.noted.get("stacks_walked_late").copied();
    let late = late.unwrap_or_default();
    let [mut named, mut whole] = [0, 0];
    for site in report.sites.iter().filter(|it| it.stack_end == "complete") {
        let totals = &site.totals;
        whole += totals.allocations;
        let mut stack = javascript_stack(site).into_iter();
        let found = stack.find(|(_, file, _)| file.ends_with("late.js"));
        let bytes = match &found {
            Some((function, _, 2)) if function == "f" => 200_000,
            Some((function, _, 3)) if function == "g" => 300_000,
            _ => continue,
        };
        assert_eq!(
            totals.allocated_bytes,
            totals.allocations * bytes,
            "{found:?}"
        );
        named += totals.allocations;
    }
    println!("{late} late; of {whole} whole stacks, {named} with their functions");
    // Node may start so slowly that its table is there before. The collector may have moved a function before it was read.
    ensure!(named * 10 >= whole * 9, "{named} of {whole}");
    Ok(())
}

/// Check that a program which claims to be V8, and whose objects are parts of themselves, huge, or lead nowhere, is counted exactly, and harms
/// nothing.
#[test]
fn false_frames_do_no_harm() -> Result<()> {
    let program = c_linked("false_v8", "false_v8", "cc", &["-rdynamic"])?;
    let recording = Heaptrace::tracing()?.record(&["--exact"], &[&program])?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    let (report, truth) = (&recording.report, recording.truth("main")?);
    report.check_nothing_lost()?;
    assert_eq!(report.totals.allocations, truth.allocations);
    assert_eq!(report.totals.allocated_bytes, truth.allocated_bytes);
    let stacks: Vec<_> = report.sites.iter().map(javascript_stack).collect();
    // It was taken for V8.
    ensure!(stacks.iter().flatten().count() > 0, "{:?}", report.quality);
    for (function, file, _) in stacks.iter().flatten() {
        assert!(function.chars().count() <= 1025 && file.chars().count() <= 1025);
    }
    Ok(())
}

/// Check that a program with a version of V8 that is not known is named in the report.
#[test]
fn unknown_versions_are_named() -> Result<()> {
    let options = ["-rdynamic", "-DMINOR=99"];
    let program = c_linked("false_v8", "unknown_v8", "cc", &options)?;
    let recording = Heaptrace::tracing()?.record(&["--exact"], &[&program])?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    let unreadable = &recording.report.quality.unreadable;
    let is_named = |it: &String| it.contains("unknown_v8: its version or build of V8 is not known");
    ensure!(unreadable.iter().any(is_named), "{unreadable:?}");
    Ok(())
}
