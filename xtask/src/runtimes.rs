//! `cargo xtask runtimes`: compares stacks of interpreted programs with the interpreters' own, and writes docs/runtimes.md.
//!
//! It runs the comparison of the tests for each interpreter of this machine, and must not know how that is done.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use heaptrace_tests::{Heaptrace, python_agreement, python_interpreters};

use crate::{apt, run, workspace};

/// The page of results, below the repository's root.
const PAGE: &str = "docs/runtimes.md";

/// The least share of allocations whose Python stack must be the interpreter's own.
const LEAST_SHARE: f64 = 0.99;

/// Compare the stacks of interpreted programs with the interpreters' own, for each interpreter of this machine.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// How often the program does everything; once are about 500 allocations.
    #[arg(long, default_value_t = 20)]
    times: u32,
    /// Only interpreters whose path contains this text; writes no file.
    #[arg(long)]
    only: Option<String>,
}

/// Runs the task.
pub fn run(args: &Args) -> Result<ExitCode> {
    apt::ensure(&["python3"], "to trace")?;
    run::build_release(None)?;
    let mut page = HEAD.to_owned();
    let mut costs = COSTS_HEAD.to_owned();
    let mut is_met = true;
    let mut is_any = false;
    for interpreter in python_interpreters() {
        let name = interpreter.display().to_string();
        if args.only.as_ref().is_some_and(|only| !name.contains(only)) {
            continue;
        }
        let version = version(&interpreter)?;
        for (mode, options) in [
            ("exact", &["--exact"][..]),
            ("exact, `--fast`", &["--exact", "--fast"]),
        ] {
            let found = python_agreement(&[interpreter.as_os_str()], options, args.times)
                .with_context(|| format!("{name}, {mode}"))?;
            let percent = |part: u64| part as f64 / found.allocations as f64 * 100.0;
            let row = format!(
                "| {version} | {} | {mode} | {} | {:.2} % | {:.2} % | {} |\n",
                build(&interpreter)?,
                found.allocations,
                percent(found.agreeing),
                percent(found.complete),
                found.report.quality.lost.values().sum::<u64>(),
            );
            print!("{row}");
            for difference in found.differences.iter().take(3) {
                println!("  {difference}");
            }
            page.push_str(&row);
            is_met &= found.share() >= LEAST_SHARE;
            is_any = true;
        }
        let cost = cost(&interpreter, &version)?;
        print!("{cost}");
        costs.push_str(&cost);
    }
    page.push_str(&costs);
    if !is_any {
        bail!("there is no such interpreter");
    }
    if args.only.is_none() {
        let path = workspace::root().join(PAGE);
        fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
        println!("Written to {}", path.display());
    }
    Ok(if is_met {
        ExitCode::SUCCESS
    } else {
        println!("Too few stacks agree.");
        ExitCode::FAILURE
    })
}

const HEAD: &str = "\
# Stacks of interpreted programs

`cargo xtask runtimes` writes this page, for each interpreter that it finds on the machine. It fails if fewer than 99 % of the
allocations have the interpreter's own stack.

## Python

A program allocates from calls, recursion, objects, closures, comprehensions, generators, coroutines, callbacks from C, exceptions,
signal handlers, threads, a forked child, and code that it makes itself, and keeps for each allocation the stack that Python gives
(`sys._getframe`). *Agree*: the functions, files and lines of all Python frames are the same, in the same order, and the number of
allocations and bytes with this stack, too. *Whole*: the stack of machine code reaches its outermost frame.

| version | build | mode | allocations | agree | whole | lost |
|--|--|--|--:|--:|--:|--:|
";

const COSTS_HEAD: &str = "
## The cost of Python frames

An operation allocates a `bytearray` of 1,000 bytes and frees it, in a loop of functions that call each other so deep. It is recorded exactly, with its
whole stack, which is the same each time. Each depth is measured in five rounds, by turns; the program measures the time itself.

| version | 1 frame, ns | 65 frames, ns | each frame, ns |
|--|--:|--:|--:|
";

/// Numbers of Python frames below the outermost ones.
const DEPTHS: [u32; 2] = [1, 65];

/// Rounds in which each depth is measured.
const ROUNDS: usize = 5;

/// The row of an interpreter in the table of costs.
fn cost(interpreter: &Path, version: &str) -> Result<String> {
    const SCRIPT: &str = "
import sys, time

def call(depth):
    if depth > 1:
        return call(depth - 1)
    begin = time.perf_counter_ns()
    for _ in range(20000):
        bytearray(1000)
    return (time.perf_counter_ns() - begin) / 20000

print(call(int(sys.argv[1])))
";
    let heaptrace = Heaptrace::tracing()?;
    let mut rounds = [[0.0; ROUNDS]; DEPTHS.len()];
    for round in 0..ROUNDS {
        for (times, depth) in rounds.iter_mut().zip(DEPTHS) {
            let depth = depth.to_string();
            let command = ["-c", SCRIPT, &depth].map(OsStr::new);
            let command: Vec<_> = [interpreter.as_os_str()]
                .into_iter()
                .chain(command)
                .collect();
            let recording = heaptrace.record(&["--exact"], &command)?;
            let time = recording.ended.stdout.trim().parse();
            times[round] = time.context("the program has not printed its time")?;
        }
    }
    let [few, many] = rounds.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[ROUNDS / 2]
    });
    let each = (many - few) / f64::from(DEPTHS[1] - DEPTHS[0]);
    Ok(format!(
        "| {version} | {few:.0} | {many:.0} | {each:.0} |\n"
    ))
}

/// The version that an interpreter names.
fn version(interpreter: &Path) -> Result<String> {
    let output = Command::new(interpreter).arg("--version").output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.trim().trim_start_matches("Python ").to_owned())
}

/// Whether the interpreter is in a library, and where the build comes from.
fn build(interpreter: &Path) -> Result<&'static str> {
    let script = "print(int('/libpython' in open('/proc/self/maps').read()))";
    let output = Command::new(interpreter)
        .args([OsStr::new("-c"), OsStr::new(script)])
        .output()?;
    let is_shared = output.stdout.trim_ascii() == b"1";
    Ok(match (interpreter.starts_with("/usr/bin"), is_shared) {
        (true, false) => "the distribution's, in the program",
        (true, true) => "the distribution's, in a library",
        (false, false) => "in the program",
        (false, true) => "in a library",
    })
}
