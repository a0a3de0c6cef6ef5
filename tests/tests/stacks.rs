//! Whole stacks from programs without frame pointers, by unwind information alone.

use std::process::Command;

use anyhow::{Context as _, Result};
use heaptrace_tests::{Heaptrace, Report, Site, c_optimized};

const LEVELS: [&str; 4] = ["-O0", "-O1", "-O2", "-O3"];

/// What each kind of frame must have above it, by the size it asks for.
const EXPECTED: [(u64, &[&str]); 8] = [
    (1001, &["leaf", "three", "two", "one", "main", "_start"]),
    (1002, &["leaf", "with_alloca", "main", "_start"]),
    (1003, &["leaf", "with_large_frame", "main", "_start"]),
    (
        1004,
        &["leaf", "comparison", "with_callback", "main", "_start"],
    ),
    (1005, &["leaf", "with_realigned_frame", "main", "_start"]),
    (
        1006,
        &["leaf", "on_signal", "with_signal", "main", "_start"],
    ),
    (1007, &["leaf", "in_thread", "start_thread"]),
    (
        1008,
        &[
            "leaf",
            "never_returns",
            "calls_what_never_returns",
            "main",
            "_start",
        ],
    ),
];

/// The site that allocated one block of a size.
fn site(report: &Report, size: u64) -> Result<&Site> {
    let found = report
        .sites
        .iter()
        .find(|site| site.totals.allocations == 1 && site.totals.allocated_bytes == size);
    found.with_context(|| format!("no site of one block of {size} bytes"))
}

/// Functions of a site, from the innermost on, those of libraries left out.
fn functions(site: &Site) -> Vec<&str> {
    let frames = site.stack.iter();
    frames
        .map(|frame| frame.function.as_deref().unwrap_or_default())
        .collect()
}

/// Check that functions called through every kind of frame are all there, in their order, and that
/// the stack is whole, at every level of optimization.
#[test]
fn every_kind_of_frame_is_left() -> Result<()> {
    for level in LEVELS {
        let fixture = c_optimized("frames", level)?;
        let recording = Heaptrace::tracing()?.record_all(&[fixture])?;
        let report = &recording.report;
        for (size, expected) in EXPECTED {
            let site = site(report, size).context(level)?;
            let found = functions(site);
            let mut rest = found.iter();
            for function in expected {
                assert!(
                    rest.any(|it| it == function),
                    "{level}, {size} bytes: no {function} in its place in {found:?}"
                );
            }
            assert_eq!(
                site.stack_end, "complete",
                "{level}, {size} bytes: {found:?}"
            );
        }
        let deep = site(report, 1009).context(level)?;
        assert_eq!(deep.stack_end, "truncated", "{level}");
        assert!(
            functions(deep)[1..].iter().all(|it| *it == "recursion"),
            "{level}"
        );
        assert_eq!(report.quality.stacks_truncated, 1);
    }
    Ok(())
}

/// Check that stacks of a distribution's stripped programs are whole, 99 of 100 at least; prints the
/// figure for each.
#[test]
fn stripped_programs_have_whole_stacks() -> Result<()> {
    let compiler = Command::new("cc").arg("-print-prog-name=cc1").output()?;
    let compiler = String::from_utf8(compiler.stdout)?.trim().to_owned();
    let folder = tempfile::tempdir()?;
    let source = folder.path().join("a.c");
    let functions = (0..200).map(|it| format!("int f{it}(int a) {{ return a * {it} + 1; }}\n"));
    std::fs::write(&source, functions.collect::<String>())?;
    let source = source.display().to_string();
    let json = "[range(3000)|{a:., b:\"x\"}]|map(.a)|add";
    let sql =
        "create table t(a,b); insert into t values(1,'x'),(2,'y'); select * from t order by b;";
    let perl = "my @a = map { { a => $_ } } 1..2000; print scalar(@a), \"\\n\"";
    let python = "import json; print(len(json.dumps(list(range(1000)))))";
    let programs: [&[&str]; 6] = [
        &["jq", "-n", json],
        &["sqlite3", ":memory:", sql],
        &["git", "--no-pager", "help", "-a"],
        &["perl", "-e", perl],
        &["/usr/bin/python3", "-c", python],
        &[&compiler, "-quiet", &source, "-o", "/dev/null"],
    ];
    for program in programs {
        let report = Heaptrace::tracing()?.record_all(program)?.report;
        let (whole, all) = (report.quality.stacks_complete, report.quality.samples);
        let percent = 100.0 * whole as f64 / all as f64;
        println!(
            "{:<20} {whole} of {all} stacks are complete: {percent:.2} %",
            program[0]
        );
        assert!(all > 0 && percent >= 99.0, "{}: {percent:.2} %", program[0]);
    }
    Ok(())
}

/// Check that a program that is started later, by a child, gets its tables while it runs: not all of
/// its stacks are whole, but some are.
#[test]
fn later_programs_get_their_tables() -> Result<()> {
    let script = "/usr/bin/python3 -c 'print(sum(len(str(i)) for i in range(200000)))'; true";
    let report = Heaptrace::tracing()?
        .record_all(&["sh", "-c", script])?
        .report;
    let whole = report.sites.iter().filter(|site| {
        let functions = functions(site);
        site.stack_end == "complete" && functions.iter().any(|it| it.starts_with("Py"))
    });
    assert!(whole.count() > 0, "{:?}", report.quality);
    Ok(())
}
