//! `cargo xtask runtimes`: compares stacks of interpreted programs with the interpreters' own, and writes docs/runtimes.md.
//!
//! It runs the comparison of the tests for each interpreter of this machine, and must not know how that is done.

mod install;
mod java;

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use heaptrace_tests::{
    Agreement, Heaptrace, Report, node_agreement, node_programs, python_agreement,
    python_interpreters,
};

use crate::{apt, process, run, workspace};

/// The page of results, below the repository's root.
const PAGE: &str = "docs/runtimes.md";

/// The variable that names the heaptrace that is compared.
const BINARY: &str = "HEAPTRACE_BIN";

/// Compare the stacks of interpreted programs with the interpreters' own, for each interpreter of this machine.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// How often the program does everything; once are about 500 allocations.
    #[arg(long, default_value_t = 20)]
    times: u32,
    /// Only interpreters whose path contains this text; writes no file.
    #[arg(long)]
    only: Option<String>,
    /// Measures no time, as on a busy machine: the page keeps the figures of time that it has.
    #[arg(long)]
    without_costs: bool,
}

/// Runs the task.
pub fn run(args: &Args) -> Result<ExitCode> {
    apt::ensure(
        &["python3", "nodejs", "openjdk-17-jdk-headless"],
        "to trace",
    )?;
    if env::var_os(BINARY).is_none() {
        return with_release();
    }
    install::ensure()?;
    let python = table(args, &python_interpreters(), &PYTHON)?;
    let node = table(args, &node_programs(), &NODE)?;
    let java = java::compare(args.times, args.only.as_deref())?;
    let tables = [&python, &node];
    if tables.iter().all(|table| table.rows.is_empty()) && !java.is_any {
        bail!("there is no such interpreter");
    }
    if args.only.is_none() {
        let path = workspace::root().join(PAGE);
        let before = match args.without_costs {
            true => fs::read_to_string(&path)?,
            false => String::new(),
        };
        let page = [
            HEAD,
            PYTHON_HEAD,
            &python.rows,
            &costs(PYTHON_COSTS_HEAD, &python.costs, &before),
            NODE_HEAD,
            &node.rows,
            &costs(NODE_COSTS_HEAD, &node.costs, &before),
            &java.page,
        ];
        fs::write(&path, page.concat())
            .with_context(|| format!("cannot write {}", path.display()))?;
        println!("Written to {}", path.display());
    }
    Ok(if tables.iter().all(|table| table.is_met) && java.is_met {
        ExitCode::SUCCESS
    } else {
        println!("Too few stacks agree.");
        ExitCode::FAILURE
    })
}

/// Runs this task anew with a release build: the harness would make one without optimization.
fn with_release() -> Result<ExitCode> {
    run::build_release(None)?;
    let mut command = Command::new(env::current_exe()?);
    command.args(env::args_os().skip(1));
    command.env(BINARY, workspace::heaptrace_binary());
    let status = process::status(&mut command)?;
    Ok(ExitCode::from(process::exit_code(status)))
}

/// How the programs of a runtime are compared.
struct Runtime {
    agreement: fn(&[&OsStr], &[&str], u32) -> Result<Agreement>,
    build: fn(&Path) -> Result<&'static str>,
    /// What is in front of the version that its programs print.
    prefix: &'static str,
    /// The language of which the share of frames with a name is a column, too.
    named: Option<&'static str>,
    /// The least share of allocations whose stack must be the runtime's own.
    least_share: f64,
    /// The option before a script, and a script that prints the nanoseconds of an operation, below so many functions.
    script: [&'static str; 2],
}

const PYTHON: Runtime = Runtime {
    agreement: python_agreement,
    build: python_build,
    prefix: "Python ",
    named: None,
    least_share: 0.99,
    script: [
        "-c",
        "
import sys, time

def call(depth):
    if depth > 1:
        return call(depth - 1)
    begin = time.perf_counter_ns()
    for _ in range(20000):
        bytearray(1000)
    return (time.perf_counter_ns() - begin) / 20000

print(call(int(sys.argv[1])))
",
    ],
};

const NODE: Runtime = Runtime {
    agreement: node_agreement,
    build: node_build,
    prefix: "v",
    named: Some("javascript"),
    least_share: 0.98,
    script: [
        "-e",
        "
function call(depth) {
  if (depth > 1) return call(depth - 1) + 0;
  const begin = process.hrtime.bigint();
  for (let i = 0; i < 20000; i += 1) Buffer.allocUnsafeSlow(1000);
  return Number(process.hrtime.bigint() - begin) / 20000;
}
console.log(call(Number(process.argv[1])));
",
    ],
};

/// What was found of the programs of a runtime.
struct Table {
    rows: String,
    costs: String,
    is_met: bool,
}

/// Compares the stacks of each program of a runtime, and measures what its frames cost.
fn table(args: &Args, programs: &[PathBuf], runtime: &Runtime) -> Result<Table> {
    let mut table = Table {
        rows: String::new(),
        costs: String::new(),
        is_met: true,
    };
    for program in programs {
        let name = program.display().to_string();
        if args.only.as_ref().is_some_and(|only| !name.contains(only)) {
            continue;
        }
        let version = version(program, runtime.prefix)?;
        for (mode, options) in [
            ("exact", &["--exact"][..]),
            ("exact, `--fast`", &["--exact", "--fast"]),
        ] {
            let found = (runtime.agreement)(&[program.as_os_str()], options, args.times)
                .with_context(|| format!("{name}, {mode}"))?;
            let percent = |part: u64, of: u64| part as f64 / of as f64 * 100.0;
            let named = runtime.named.map_or(String::new(), |language| {
                let [named, frames] = named_frames(&found.report, language);
                format!(" {:.2} % |", percent(named, frames))
            });
            let row = format!(
                "| {version} | {} | {mode} | {} | {:.2} % | {:.2} % |{named} {} |\n",
                (runtime.build)(program)?,
                found.allocations,
                percent(found.agreeing, found.allocations),
                percent(found.complete, found.allocations),
                found.report.quality.lost.values().sum::<u64>(),
            );
            print!("{row}");
            for difference in found.differences.iter().take(3) {
                println!("  {difference}");
            }
            table.rows.push_str(&row);
            table.is_met &= found.share() >= runtime.least_share;
        }
        if !args.without_costs {
            let cost = cost(program, &version, runtime.script)?;
            print!("{cost}");
            table.costs.push_str(&cost);
        }
    }
    Ok(table)
}

/// The frames of a language that have a name, and all of them.
fn named_frames(report: &Report, language: &str) -> [u64; 2] {
    let frames = report.sites.iter().flat_map(|site| &site.stack);
    let frames = frames.filter(|frame| frame.language == language);
    frames.fold([0, 0], |[named, all], frame| {
        [named + u64::from(frame.function.is_some()), all + 1]
    })
}

const HEAD: &str = "\
# Stacks of interpreted programs

`cargo xtask runtimes` writes this page, for each interpreter of the machine and for those that it installs. It fails if fewer than 99 % of the
allocations in Python, or 98 % of those in JavaScript, have the interpreter's own stack.

*Agree*: the functions, files and lines of all frames of the language are the same, in the same order. An allocation that is missing from its
stack, or one too many there, does not agree. *Whole*: the stack of machine code reaches its outermost frame. *Named*: the frames of the
language that have a name, of all stacks of the run.
";

const PYTHON_HEAD: &str = "
## Python

A program allocates from calls, recursion, objects, closures, comprehensions, generators, coroutines, callbacks from C, exceptions,
signal handlers, threads, a forked child, and code that it makes itself, and keeps for each allocation the stack that Python gives
(`sys._getframe`).

| version | build | mode | allocations | agree | whole | lost |
|--|--|--|--:|--:|--:|--:|
";

const PYTHON_COSTS_HEAD: &str = "
### The cost of Python frames

An operation allocates a `bytearray` of 1,000 bytes and frees it, in a loop of functions that call each other so deep. It is recorded exactly, with its
whole stack, which is the same each time. Each depth is measured in five rounds, by turns; the program measures the time itself.

| version | 1 frame, ns | 65 frames, ns | each frame, ns |
|--|--:|--:|--:|
";

const NODE_HEAD: &str = "
## JavaScript

A program allocates from calls, recursion, classes, closures, callbacks of built-in functions, generators, asynchronous functions, timers, exceptions,
scripts that it makes itself, functions that were compiled and optimised, and two workers, and keeps for each allocation the stack that V8 gives
(`Error.prepareStackTrace`). Of Node's own scripts, only the file is compared.

| version | build | mode | allocations | agree | whole | named | lost |
|--|--|--|--:|--:|--:|--:|--:|
";

const NODE_COSTS_HEAD: &str = "
### The cost of JavaScript frames

The same with `Buffer.allocUnsafeSlow` of 1,000 bytes, which the collector frees.

| version | 1 frame, ns | 65 frames, ns | each frame, ns |
|--|--:|--:|--:|
";

/// Numbers of frames below the outermost ones.
const DEPTHS: [u32; 2] = [1, 65];

/// Rounds in which each depth is measured.
const ROUNDS: usize = 5;

/// A section with a table of costs: the rows that were measured, or else those that the page has. Nothing if there are none.
fn costs(head: &str, measured: &str, page: &str) -> String {
    let mut rows = measured.to_owned();
    if rows.is_empty() {
        let title = head.lines().find_map(|line| line.strip_prefix("### "));
        let section = title.and_then(|title| page.split_once(&format!("# {title}\n")));
        let lines = section.map_or("", |(_, section)| section).lines();
        let section = lines.take_while(|line| !line.starts_with('#'));
        for row in section.filter(|line| line.starts_with("| ") && !head.contains(line)) {
            rows.push_str(row);
            rows.push('\n');
        }
    }
    if rows.is_empty() {
        return rows;
    }
    [head, &rows].concat()
}

/// The row of an interpreter in the table of costs.
fn cost(program: &Path, version: &str, [option, script]: [&str; 2]) -> Result<String> {
    let heaptrace = Heaptrace::tracing()?;
    let mut rounds = [[0.0; ROUNDS]; DEPTHS.len()];
    for round in 0..ROUNDS {
        for (times, depth) in rounds.iter_mut().zip(DEPTHS) {
            let depth = depth.to_string();
            let command = [option, script, &depth].map(OsStr::new);
            let command: Vec<_> = [program.as_os_str()].into_iter().chain(command).collect();
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

/// The version that a program names, after a prefix.
fn version(program: &Path, prefix: &str) -> Result<String> {
    let output = Command::new(program).arg("--version").output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.trim().trim_start_matches(prefix).to_owned())
}

/// Where a Node comes from.
fn node_build(program: &Path) -> Result<&'static str> {
    Ok(if program.starts_with("/usr/bin") {
        "the system's"
    } else {
        "npm's"
    })
}

/// Whether the interpreter is in a library, and where the build comes from.
fn python_build(interpreter: &Path) -> Result<&'static str> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that figures of time are kept if none were measured, and replaced by others; a table without rows is left out.
    #[test]
    fn figures_of_time_are_kept() {
        let page = [
            &costs(PYTHON_COSTS_HEAD, "| 3.8 | 1 | 2 | 3 |\n", ""),
            NODE_HEAD,
            "| 16 | other | table |\n",
        ];
        let page = page.concat();
        assert_eq!(costs(NODE_COSTS_HEAD, "", &page), "");
        let kept = costs(PYTHON_COSTS_HEAD, "", &page);
        assert!(
            kept.ends_with("|--|--:|--:|--:|\n| 3.8 | 1 | 2 | 3 |\n"),
            "{kept}"
        );
        let new = costs(PYTHON_COSTS_HEAD, "| 3.9 | 4 | 5 | 6 |\n", &page);
        assert!(new.contains("3.9") && !new.contains("3.8"), "{new}");
    }
}
