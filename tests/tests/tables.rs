//! Tests of unwind tables and of the other entries of BPF maps: bounded, correct, and removed after use.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use heaptrace_tests::{Child, Heaptrace, MINUTE, Site, c, map_entries, ready_pid, run, until};

/// The number of short processes, unless the environment names another.
const PROCESSES: u32 = 2000;

/// Check that thousands of short processes leave no entries in BPF maps, in every way of ending. Prints each map's
/// entries before and after. `HEAPTRACE_TEST_PROCESSES` sets the number of processes.
#[test]
fn short_processes_leave_nothing_behind() -> Result<()> {
    let processes = std::env::var("HEAPTRACE_TEST_PROCESSES");
    let processes = processes.unwrap_or_else(|_| PROCESSES.to_string());
    let here = Heaptrace::tracing()?;
    let mut target = Child::spawn(c("crowd")?.command().args(["16", &processes]))?;
    let pid = ready_pid(&target.line()?)?;
    let mut tracer = here.start_record(&["--pid", &pid.to_string()])?;
    here.wait_attached(&mut tracer, pid)?;
    target.go()?;
    target.line()?;
    // Time is the point: entries of ended processes are removed with the next update, a second later at most.
    std::thread::sleep(Duration::from_secs(3));
    let before = map_entries(tracer.pid())?;
    target.go()?;
    until("all processes", 15 * MINUTE, || Ok(target.line().is_ok()))?;
    let mut after = before.clone();
    // The loop below says more than this error.
    let _ = until("the maps to be as before", MINUTE, || {
        after = map_entries(tracer.pid())?;
        Ok(after
            .iter()
            .all(|(name, entries)| before.get(name).is_some_and(|it| entries <= it)))
    });
    for (name, entries) in &after {
        let before = before.get(name).copied().unwrap_or_default();
        println!("{name:<16} {before:>6} {entries:>6} after {processes} processes");
        assert!(*entries <= before, "{name}: {before} became {entries}");
    }
    for name in ["LIVE", "PROCESSES", "STACKS", "TABLES", "THREADS", "ENDED"] {
        assert!(after.contains_key(name), "{name} is not among {after:?}");
    }
    target.go()?;
    target.wait()?.success()?;
    let report = here.finish(tracer)?.report;
    report.check_nothing_lost()?;
    let seen = report.processes.len();
    assert!(seen > processes.parse::<usize>()?, "{seen} processes");
    Ok(())
}

/// Check that a file whose table doesn't fit is named with the process that runs it, and that the counts stay exact.
#[test]
fn files_without_table_are_named() -> Result<()> {
    let here = Heaptrace::tracing()?;
    // The C library's needs 113 KiB.
    let options = ["--max-table-memory", "100KiB", "--no-table-cache"];
    let recording = here.record(&options, &[c("deep")?])?;
    let truth = recording.truth("main")?;
    let quality = &recording.report.quality;
    let process = format!("deep ({}): ", truth.pid);
    let named = quality.without_tables.iter();
    let mut named = named.filter(|it| it.starts_with(&process));
    assert!(
        named.any(|it| it.contains("libc.so.6")),
        "{:?}",
        quality.without_tables
    );
    assert!(quality.noted["unwind_tables_refused"] > 0);
    truth.matches(&recording.report.totals)
}

const LIBRARY: &str = "
    #include <stdlib.h>
    __attribute__((noinline)) static void *deeper(size_t size) {
        volatile char space[SPACE];
        space[0] = 1;
        void *block = malloc(size);
        space[SPACE - 1] = (char)(size_t)block;
        return block;
    }
    void *work(size_t size) {
        void *block = deeper(size);
        __asm__ volatile(\"\" ::: \"memory\");
        return block;
    }";

fn library(path: &Path, space: u32) -> Result<()> {
    let source = path.with_extension("c");
    fs::write(&source, LIBRARY)?;
    let mut command = Command::new("cc");
    command
        .args(["-O2", "-fomit-frame-pointer", "-fPIC", "-shared"])
        .arg(format!("-DSPACE={space}"))
        .arg(&source)
        .arg("-o")
        .arg(path);
    run(&mut command)?.success()?;
    Ok(())
}

/// Check that stacks are complete through a library that is loaded during the run, unloaded, and replaced by another one
/// with the same inode, loaded at the same address.
#[test]
fn a_replaced_library_has_its_own_table() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let [path, other] = ["plug.so", "other.so"].map(|name| here.path(name));
    library(&path, 40)?;
    library(&other, 3000)?;
    let mut target = Child::spawn(c("reloads")?.command().arg(&path))?;
    let pid = ready_pid(&target.line()?)?;
    let mut tracer = here.start_record(&["--pid", &pid.to_string()])?;
    here.wait_attached(&mut tracer, pid)?;
    target.go()?;
    target.line()?;
    // Written in place: the same inode.
    fs::write(&path, fs::read(&other)?)?;
    target.go()?;
    target.line()?;
    target.go()?;
    target.wait()?.success()?;
    let report = here.finish(tracer)?.report;
    for size in [20_001, 20_002] {
        let found = report
            .sites
            .iter()
            .find(|site| site.totals.allocations == 1 && site.totals.allocated_bytes == size);
        let site: &Site = found.with_context(|| format!("no block of {size} bytes"))?;
        let functions = site.stack.iter().map(|it| it.function.as_deref());
        let functions: Vec<_> = functions.map(Option::unwrap_or_default).collect();
        assert_eq!(site.stack_end, "complete", "{size}: {functions:?}");
        let mut rest = functions.iter();
        for function in ["deeper", "work", "main", "_start"] {
            assert!(
                rest.any(|it| *it == function),
                "{size}: no {function} in its place in {functions:?}"
            );
        }
    }
    Ok(())
}

/// Check that the next run uses cached tables, and rebuilds tables whose files were damaged.
#[test]
fn cached_tables_are_used_and_checked() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let folder = here.path("cache");
    let folder_text = folder.display().to_string();
    // No stack may be incomplete because a table is missing or wrong. Other reasons may occur.
    let record = || -> Result<_> {
        let command = ["jq", "-n", "1"];
        let recording = here.record(&["--table-cache", &folder_text], &command)?;
        let quality = recording.report.quality;
        for reason in [
            "no_table_yet",
            "misread",
            "unmapped",
            "no_unwind_information",
        ] {
            let broken = quality.noted.get(&format!("stack_broken_{reason}"));
            assert_eq!(broken, None, "{:?}", quality.noted);
        }
        assert!(
            quality.stacks_complete * 100 > quality.samples * 95,
            "{quality:?}"
        );
        Ok(quality)
    };
    let cached = |noted: &std::collections::BTreeMap<String, u64>| noted["unwind_tables_cached"];
    let first = record()?;
    let files = || -> Result<Vec<_>> {
        let entries = fs::read_dir(&folder)?;
        Ok(entries.collect::<std::io::Result<Vec<_>>>()?)
    };
    assert_eq!(cached(&first.noted), 0);
    assert!(!files()?.is_empty());
    let second = record()?;
    assert!(cached(&second.noted) > 0, "{:?}", second.noted);
    for file in files()? {
        let mut bytes = fs::read(file.path())?;
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
        fs::write(file.path(), bytes)?;
    }
    let third = record()?;
    assert_eq!(cached(&third.noted), 0, "{:?}", third.noted);
    Ok(())
}
