//! Tests of stacks that go through a file whose unwind table is not there yet: they are whole, and everything else stays as it is.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{Heaptrace, Report, python_stack, require_tool, run};

/// The tables of all files are built anew, as in the first run on a machine.
const FIRST_RUN: [&str; 1] = ["--no-table-cache"];

const C: &str = "
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    int NAME(int count, char **words) {
        char *copy = malloc(100);
        strcpy(copy, words[0]);
        printf(\"%s %d\\n\", copy, count);
        free(copy);
        return 0;
    }";

const CPP: &str = "
    #include <map>
    #include <regex>
    #include <string>
    int main(int count, char **words) {
        std::map<std::string, int> found;
        std::regex wanted(\"a(b|c)*\");
        for (int index = 0; index < count; index++)
            found[words[index]] = std::regex_match(words[index], wanted);
        return found.size();
    }";

/// The share of a report's samples with a whole stack.
fn whole(report: &Report) -> f64 {
    let quality = &report.quality;
    let all = quality.stacks_complete + quality.stacks_truncated + quality.stacks_broken;
    quality.stacks_complete as f64 / all.max(1) as f64
}

/// Checks that nothing is lost, that nearly all stacks are whole, and that some were followed late.
fn check(report: &Report, what: &str) -> Result<()> {
    report.check_nothing_lost()?;
    let late = report.quality.noted.get("stacks_walked_late").copied();
    let (whole, late) = (whole(report), late.unwrap_or_default());
    println!("{what}: {:.2} % whole, {late} stacks late", whole * 100.0);
    ensure!(whole >= 0.95, "{what}: {:?}", report.quality);
    ensure!(late > 0, "{what}: {:?}", report.quality);
    Ok(())
}

/// A program of the C compiler.
fn compiler(name: &str) -> Result<PathBuf> {
    require_tool("gcc", "gcc")?;
    let named = run(Command::new("gcc").arg(format!("-print-prog-name={name}")))?.success()?;
    Ok(named.stdout.trim().into())
}

/// Check that stacks are whole when a compiler driver starts the compiler, in C and in C++: the compiler makes most of its calls
/// before its table is built, and is ended soon after.
#[test]
fn compilers_have_whole_stacks_in_the_first_run() -> Result<()> {
    for (driver, file, source) in [("gcc", "a.c", C), ("g++", "h.cpp", CPP)] {
        require_tool(driver, driver)?;
        let here = Heaptrace::tracing()?;
        fs::write(here.path(file), source.replace("NAME", "main"))?;
        let recording = here.record(&FIRST_RUN, &[driver, "-O2", "-c", file, "-o", "out.o"])?;
        ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
        check(&recording.report, driver)?;
    }
    Ok(())
}

/// Check that stacks are whole in a build with several compilers at a time.
#[test]
fn builds_have_whole_stacks_in_the_first_run() -> Result<()> {
    require_tool("make", "make")?;
    let here = Heaptrace::tracing()?;
    let mut objects = String::new();
    for number in 0..10 {
        let name = format!("f{number}");
        fs::write(here.path(&format!("{name}.c")), C.replace("NAME", &name))?;
        objects += &format!(" {name}.o");
    }
    let rules = format!("all:{objects}\n%.o: %.c\n\tgcc -O2 -c $<\n");
    fs::write(here.path("Makefile"), rules)?;
    let recording = here.record(&FIRST_RUN, &["make", "-j2"])?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    check(&recording.report, "make")
}

/// Allocated and freed blocks and bytes of each stack of a process.
fn by_stack(report: &Report, pid: u32) -> BTreeMap<Vec<&str>, [u64; 4]> {
    let mut sums: BTreeMap<Vec<&str>, [u64; 4]> = BTreeMap::new();
    for site in report.sites.iter().filter(|site| site.pid == pid) {
        let stack = site.stack.iter().map(|it| it.address.as_str()).collect();
        let sum = sums.entry(stack).or_default();
        let totals = &site.totals;
        for (sum, value) in sum.iter_mut().zip([
            totals.allocations,
            totals.allocated_bytes,
            totals.freed_bytes,
            totals.temporary_allocations,
        ]) {
            *sum += value;
        }
    }
    sums
}

/// Check that stacks that were followed late are the stacks that the kernel program finds when it has the tables, with the same
/// counts and peaks: of two runs of the compiler, one after the other, only the first one comes before its table.
#[test]
fn late_stacks_are_those_of_the_kernel_program() -> Result<()> {
    let here = Heaptrace::tracing()?;
    fs::write(here.path("a.c"), C.replace("NAME", "main"))?;
    let input = run(Command::new("gcc")
        .args(["-E", "a.c", "-o", "a.i"])
        .current_dir(here.folder()))?;
    input.success()?;
    let once = format!("{} -quiet a.i -o /dev/null", compiler("cc1")?.display());
    let twice = format!("{once}; sleep 2; {once}");
    // Without random addresses, both runs do the same.
    let recording = here.record(&FIRST_RUN, &["setarch", "-R", "sh", "-c", &twice])?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    let report = &recording.report;
    check(report, "cc1")?;
    let mut both = report.processes.iter().filter(|it| it.command == "cc1");
    let (first, second) = both.next().zip(both.next()).context("no two runs")?;
    let (late, at_once) = (by_stack(report, first.pid), by_stack(report, second.pid));
    ensure!(late.len() > 1000, "{} stacks", late.len());
    assert_eq!(late, at_once);
    // With the order of events, peaks would change.
    ensure!(first.totals == second.totals, "{first:?}, {second:?}");
    Ok(())
}

/// Check that the stacks of a program are whole that ends some milliseconds after its first call.
#[test]
fn short_programs_have_whole_stacks_in_the_first_run() -> Result<()> {
    let compiler = compiler("cc1plus")?;
    let here = Heaptrace::tracing()?;
    let command = format!("{} --version; true", compiler.display());
    let recording = here.record(&FIRST_RUN, &["sh", "-c", &command])?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    check(&recording.report, "cc1plus --version")
}

/// Check that a ring without room for raw stacks loses none of the stacks themselves: they stay incomplete, and are counted. A run
/// whose ring is read in time has room for all, so there are several.
#[test]
fn a_small_ring_drops_raw_stacks_first() -> Result<()> {
    let here = Heaptrace::tracing()?;
    fs::write(here.path("a.c"), C.replace("NAME", "main"))?;
    let options = ["--no-table-cache", "--ring-size", "64KiB"];
    for _ in 0..10 {
        let recording = here.record(&options, &["gcc", "-O2", "-c", "a.c", "-o", "out.o"])?;
        ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
        let quality = &recording.report.quality;
        let dropped = quality.noted.get("raw_stacks_dropped").copied();
        println!(
            "{dropped:?} dropped, {:.2} % whole",
            whole(&recording.report) * 100.0
        );
        let samples = quality.stacks_complete + quality.stacks_truncated + quality.stacks_broken;
        ensure!(
            samples == recording.report.totals.allocations,
            "{quality:?}"
        );
        if dropped.unwrap_or_default() > 0 {
            return Ok(());
        }
    }
    anyhow::bail!("no run dropped a raw stack");
}

/// Check that a script which another program starts has Python frames before the table of the interpreter is there, with exact bytes: the
/// interpreter in a file is known long before its table. And that one which `env` starts, as its first line says, has them from the beginning.
#[test]
fn scripts_have_python_frames_in_the_first_run() -> Result<()> {
    const COUNT: u64 = 300;
    require_tool("python3", "python3")?;
    let here = Heaptrace::tracing()?;
    let script = here.path("script.py");
    let code = format!(
        "#!/usr/bin/env python3
def inner():
    bytearray(300_000)
def outer():
    for _ in range({COUNT}):
        inner()
outer()
"
    );
    fs::write(&script, code)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    let path = script.display().to_string();
    let options = [&FIRST_RUN[..], &["--exact"]].concat();
    let by_shell = format!("python3 {path}; true");
    let recorded = |command: &[&str]| {
        let recording = here.record(&options, command)?;
        ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
        let report = recording.report;
        report.check_nothing_lost()?;
        let mut sum = [0; 2];
        for site in &report.sites {
            let stack = python_stack(site);
            let functions: Vec<_> = stack.iter().map(|it| it.0.as_str()).collect();
            if functions == ["inner", "outer", "<module>"] {
                sum[0] += site.totals.allocations;
                sum[1] += site.totals.allocated_bytes;
            }
        }
        println!("{command:?}: {sum:?}, {:?}", report.quality.noted);
        let late = report.quality.noted.get("stacks_walked_late").copied();
        anyhow::Ok((sum, late.unwrap_or_default()))
    };
    let all = [COUNT, COUNT * 300_001];
    assert_eq!(recorded(&[&path])?.0, all);
    // On a busy machine, the script can end before its interpreter's file was looked at.
    for _ in 0..10 {
        let (sum, late) = recorded(&["sh", "-c", &by_shell])?;
        if sum == all && late > 100 {
            return Ok(());
        }
    }
    anyhow::bail!("Python frames were missing each time")
}
