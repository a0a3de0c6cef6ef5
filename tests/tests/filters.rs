//! Tests of the filter language: every command finds the same sums for a filter, and a mistake is shown at its place.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{Child, Heaptrace, MINUTE, c, ready_pid, require_tool, run, until};
use serde_json::Value;

/// The file of named filters.
const NAMED: &str = "\
# Two groups, and what is in neither of them.
zeroed = function=truth_calloc or function~^truth_re
shell  = process=sh
others = not zeroed and not shell
";

/// A shell that runs a fixture and another program.
fn recorded() -> Result<Heaptrace> {
    let here = Heaptrace::tracing()?;
    let script = format!("{} && ls -l / > /dev/null; :", c("hooks")?.path.display());
    let recording = here.record_all(&["sh", "-c", &script])?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    fs::write(here.path("named"), NAMED)?;
    Ok(here)
}

/// The output of a command that reads the recording with a filter.
fn filtered(here: &Heaptrace, command: &[&str], filter: &[&str]) -> Result<String> {
    let arguments = [command, &["heaptrace.data"], filter].concat();
    Ok(here.run(&arguments)?.success()?.stdout)
}

fn json(here: &Heaptrace, command: &[&str], filter: &[&str]) -> Result<Value> {
    Ok(serde_json::from_str(&filtered(here, command, filter)?)?)
}

/// The allocations and the bytes left at exit that a report finds.
fn sums(report: &Value) -> Result<(u64, u64)> {
    let of = |name: &str| report["totals"][name].as_u64().context("no number");
    Ok((of("allocations")?, of("left_at_exit_bytes")?))
}

/// The sum of the last numbers of lines.
fn last_numbers(lines: &str) -> Result<u64> {
    let numbers = lines.lines().filter_map(|line| line.rsplit(' ').next());
    let numbers = numbers.map(|it| it.parse::<u64>().context("no number"));
    numbers.sum()
}

/// Compares what each command finds for a filter with the allocations and the bytes left at exit of the report.
fn every_command(here: &Heaptrace, filter: &[&str], found: (u64, u64)) -> Result<()> {
    let (allocations, left) = found;
    let source = json(here, &["report", "--source", "--format", "json"], filter)?;
    assert_eq!(sums(&source)?, found, "{filter:?}");
    let export = json(here, &["export", "--format", "json", "-o", "-"], filter)?;
    assert_eq!(sums(&export)?, found, "{filter:?}");
    let by_number = [
        "export",
        "--format",
        "folded",
        "-o",
        "-",
        "--metric",
        "total-allocations",
    ];
    assert_eq!(
        last_numbers(&filtered(here, &by_number, filter)?)?,
        allocations
    );

    let leaks = json(here, &["leaks", "--format", "json"], filter)?;
    let entries = leaks["left"].as_array().context("no list")?;
    let bytes = entries.iter().filter_map(|it| it["left_bytes"].as_u64());
    assert_eq!(bytes.sum::<u64>(), left, "{filter:?}");

    let diff = [
        "diff",
        "heaptrace.data",
        "--format",
        "json",
        "--metric",
        "total-allocations",
    ];
    let diff = json(here, &diff, filter)?;
    let total = [&diff["total"]["old"], &diff["total"]["new"]].map(Value::as_u64);
    assert_eq!(total, [Some(allocations); 2], "{filter:?}");

    let svg = filtered(here, &["flamegraph", "-o", "-"], filter)?;
    let (_, rest) = svg.split_once("total ").context("no total")?;
    let (_, rest) = rest.split_once(" in ").context("no number")?;
    let number: String = rest
        .chars()
        .take_while(|it| it.is_ascii_digit() || *it == ',')
        .filter(char::is_ascii_digit)
        .collect();
    assert_eq!(number, allocations.to_string(), "{filter:?}");

    filtered(here, &["pprof", "-o", "out.pb.gz"], filter)?;
    let mut go = Command::new(require_tool("go", "golang-go")?);
    go.args([
        "tool",
        "pprof",
        "-symbolize=none",
        "-top",
        "-sample_index=alloc_objects",
    ])
    .arg(here.path("out.pb.gz"))
    .current_dir(here.folder())
    .env("HOME", here.folder())
    .env("GOTOOLCHAIN", "local");
    let top = run(&mut go)?.success()?.stdout;
    ensure!(top.contains(&format!(" of {allocations} total")), "{top}");
    Ok(())
}

/// Check that every command finds the sums of the report for the same filter, that JSON has it with what its names stand for, and that
/// parts add up to the whole.
#[test]
fn commands_agree() -> Result<()> {
    let here = recorded()?;
    let mut parts = (0, 0);
    for (filter, in_full) in [
        (
            "zeroed and not shell",
            "(function=truth_calloc or function~^truth_re) and not process=sh",
        ),
        ("shell", "process=sh"),
        (
            "others",
            "not (function=truth_calloc or function~^truth_re) and not process=sh",
        ),
    ] {
        let filter = ["--filter", filter, "--filters", "named"];
        let report = json(&here, &["report", "--format", "json"], &filter)?;
        let found @ (allocations, left) = sums(&report)?;
        ensure!(allocations > 0, "{filter:?}");
        parts = (parts.0 + allocations, parts.1 + left);
        assert_eq!(report["filters"], serde_json::json!([in_full]));

        let again = json(
            &here,
            &["report", "--format", "json"],
            &["--filter", in_full],
        )?;
        assert_eq!(again["totals"], report["totals"], "{in_full}");
        if filter[1] == "others" {
            // For the others, what all commands share is enough.
            every_command(&here, &filter, found)?;
        }
    }
    let whole = json(&here, &["report", "--format", "json"], &[])?;
    assert_eq!(parts, sums(&whole)?);
    Ok(())
}

/// Check that a mistake in a filter, or in a file of filters, ends a command with the place of the mistake, before anything is traced.
#[test]
fn mistakes_have_their_place() -> Result<()> {
    let here = Heaptrace::tracing()?;
    fs::write(here.path("named"), "web = proces=nginx\n")?;
    let named = ["--filter", "web", "--filters", "named"];
    for (arguments, words) in [
        (
            &["report", "--filter", "pid=1 and colour=x"][..],
            "              ^^^^^^\n",
        ),
        (&["report", "--filter", "web"], "--filters FILE"),
        (
            &[&["report"][..], &named].concat(),
            "named, line 1: unknown key `proces`",
        ),
        (
            &[&named[..], &["--", "true"]].concat(),
            "did you mean `process`?",
        ),
    ] {
        let ended = here.run(arguments)?;
        ensure!(
            ended.code() != 0 && ended.stdout.is_empty(),
            "{arguments:?}"
        );
        ensure!(ended.stderr.contains(words), "{}", ended.stderr);
    }
    Ok(())
}

/// The live and the freed bytes of a report.
fn live_and_freed(report: &Value) -> [Option<u64>; 2] {
    ["live_bytes", "freed_bytes"].map(|name| report["totals"][name].as_u64())
}

/// Check that filters choose single blocks by time, age and size, alone and with functions, to the byte, in every kind of output; and that a
/// recording without single blocks is refused with what to record.
#[test]
fn single_blocks_are_chosen() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let mut target = Child::spawn(&mut c("marks")?.command())?;
    let pid = ready_pid(&target.line()?)?;
    let mut tracer = here.start_record(&["--pid", &pid.to_string(), "--events"])?;
    here.wait_attached(&mut tracer, pid)?;
    // In each phase, 10, 20 and 30 blocks of 100 bytes are kept, and 20 of 1,000 until the next one.
    let mut mark = None;
    for phase in 1..=3 {
        target.go()?;
        target.line()?;
        if phase == 2 {
            tracer.signal(libc::SIGUSR2)?;
            until("the mark", MINUTE, || {
                let marks = json(&here, &["leaks", "--format", "json"], &[])?;
                mark = marks["marks"][0]["at_ns"].as_u64();
                Ok(mark.is_some())
            })?;
        }
    }
    tracer.signal(libc::SIGINT)?;
    here.finish(tracer)?.report.check_nothing_lost()?;
    let mark = mark.context("no mark")?;
    let mark = format!("{}.{:09}s", mark / 1_000_000_000, mark % 1_000_000_000);
    let before = format!("time<{mark}");
    let report = ["report", "--format", "json"];
    for (filter, live, freed) in [
        (format!("time>={mark}"), 23_000, 0),
        (before.clone(), 3_000, 40_000),
        (format!("{before} and size=1000"), 0, 40_000),
        (format!("not {before} and function=keeps"), 3_000, 0),
        (format!("function=caches or {before}"), 23_000, 40_000),
        ("age<24h".to_owned(), 26_000, 40_000),
        ("size>1000".to_owned(), 0, 0),
    ] {
        let found = json(&here, &report, &["--filter", &filter])?;
        assert_eq!(live_and_freed(&found), [live, freed].map(Some), "{filter}");
        assert_eq!(found["chosen_blocks"]["has_freed"], true, "{filter}");
    }
    let filter = ["--filter", &before];
    let folded = [
        "export",
        "--format",
        "folded",
        "-o",
        "-",
        "--metric",
        "live-bytes",
    ];
    assert_eq!(last_numbers(&filtered(&here, &folded, &filter)?)?, 3_000);
    let same = here.data().display().to_string();
    let diff = ["diff", &same, "--format", "json", "--metric", "live-bytes"];
    assert_eq!(json(&here, &diff, &filter)?["total"]["new"], 3_000);
    filtered(&here, &["flamegraph", "-o", "out.svg"], &filter)?;
    filtered(&here, &["pprof", "-o", "out.pb.gz"], &filter)?;
    let text = filtered(&here, &["report"], &filter)?;
    ensure!(text.contains("2.9 KiB") && !text.contains("peak"), "{text}");

    here.record(&[], &["true"])?;
    for (arguments, words) in [
        (&["report", "--filter", "age>1s"][..], "record --blocks"),
        (&["timeline", "--filter", "age>1s"], "report --at TIME"),
        (&["--filter", "time>1s", "--", "true"], "record --blocks"),
    ] {
        let ended = here.run(arguments)?;
        ensure!(ended.code() != 0, "{arguments:?}");
        ensure!(ended.stderr.contains(words), "{}", ended.stderr);
    }
    target.wait()?.success()?;
    Ok(())
}
