//! Tests of what a report shows first: memory that can be compared with what the kernel counts, and no zero that may be wrong.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{Child, Heaptrace, MINUTE, c, ready_pid, until};

const MIB: u64 = 1 << 20;

/// The resident memory of a process, as the kernel counts it.
fn resident(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kib.context("no resident memory")?.parse::<u64>()? * 1024)
}

fn ensure_close(what: &str, found: u64, truth: u64) -> Result<()> {
    ensure!(
        found.abs_diff(truth) <= truth / 10,
        "{what} is {found}, and should be {truth}"
    );
    Ok(())
}

/// Check that a sampled look at a running process compares what it recorded with the resident memory, says how much was
/// there before, and gives a heap without a sample an upper bound. (Once it said `live 0 B`.)
#[test]
fn a_look_at_a_process_tells_what_it_does_not_know() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let mut target = Child::spawn(&mut c("grown")?.command())?;
    let pid = ready_pid(&target.line()?)?;
    let before = resident(pid)?;
    let arguments = ["--pid", &pid.to_string(), "--sample", "256MiB", "--mmap"];
    let mut tracer = here.start_record(&arguments)?;
    here.wait_attached(&mut tracer, pid)?;
    target.go()?;
    ready_pid(&target.line()?)?;
    until("the mapping in the data file", MINUTE, || {
        let report = here.report();
        Ok(report.is_ok_and(|report| report.kinds.mapped.live_bytes == 48 * MIB))
    })?;
    tracer.signal(libc::SIGINT)?;
    let report = here.finish(tracer)?.report;
    let now = resident(pid)?;
    target.go()?;
    target.wait()?.success()?;

    let memory = report.process(pid)?.memory;
    ensure_close("resident memory", memory.resident, now)?;
    ensure_close("resident memory before", memory.resident_before, before)?;
    ensure!(memory.peak_resident >= memory.resident, "{memory:?}");
    assert_eq!(memory.mapped_live, 48 * MIB);
    // 6,400 bytes: a sample of one in 256 MiB sees none of it, but in one of forty thousand runs.
    ensure!(memory.heap_live < MIB, "{memory:?}");
    let text = here.run(&["report", "heaptrace.data"])?.success()?.stdout;
    let first: String = text.lines().take(12).collect::<Vec<_>>().join("\n");
    for part in ["below ", "mapped 48.0 MiB", "resident", "before tracing"] {
        ensure!(first.contains(part), "{part} is not in:\n{first}");
    }
    ensure!(!first.contains(" 0 B"), "a zero without a bound:\n{first}");
    Ok(())
}

/// Check that the peak of a compiler, which maps its memory itself, explains most of its resident memory. (Once its peak was
/// that of another program.)
#[test]
fn the_peak_of_a_compiler_is_explained() -> Result<()> {
    let here = Heaptrace::tracing()?;
    fs::write(
        here.path("large.cpp"),
        "#include <regex>\n#include <functional>\n",
    )?;
    let recording = here.record(&["--mmap"], &["g++", "-fsyntax-only", "large.cpp"])?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    let report = &recording.report;
    let compiler = report.processes.iter().find(|it| it.command == "cc1plus");
    let memory = compiler.context("no compiler")?.memory;
    ensure!(
        memory.peak_live > memory.peak_resident / 2 && memory.peak_live < 2 * memory.peak_resident,
        "{memory:?}"
    );
    Ok(())
}
