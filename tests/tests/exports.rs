//! Tests of `heaptrace export`: each format is opened by its own reader, which must find the sums of the report.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{Heaptrace, Report, c, require_tool, run, target, workspace};
use serde_json::Value;

/// How recordings are made.
const EXACT: &[&str] = &["--exact"];
const SAMPLED: &[&str] = &["--sample", "64KiB"];

/// A recording of a fixture that keeps, frees and grows blocks, made once in each way.
fn recorded(options: &[&str]) -> Result<(Heaptrace, Report)> {
    static EXACT_DATA: OnceLock<Vec<u8>> = OnceLock::new();
    static SAMPLED_DATA: OnceLock<Vec<u8>> = OnceLock::new();
    let made = if options == EXACT {
        &EXACT_DATA
    } else {
        &SAMPLED_DATA
    };
    let here = Heaptrace::tracing()?;
    if let Some(data) = made.get() {
        fs::write(here.data(), data)?;
    } else {
        let recording = here.record(options, &[c("hooks")?])?;
        ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
        // Another thread may have been faster. Both recordings are equally good.
        let _ = made.set(fs::read(here.data())?);
    }
    let report = here.report()?;
    Ok((here, report))
}

/// Exports the recording, and returns what was written.
fn export(here: &Heaptrace, format: &str, file: &str, options: &[&str]) -> Result<Vec<u8>> {
    let mut arguments = vec!["export", "--format", format, "-o", file];
    arguments.extend(options);
    here.run(&arguments)?.success()?;
    Ok(fs::read(here.path(file))?)
}

/// The sum that a tool of the pprof family finds in a heap profile.
fn total(here: &Heaptrace, tool: &Path, file: &str, option: &str) -> Result<u64> {
    let mut command = Command::new(tool);
    command
        .args(["--text", "--show_bytes", option])
        .arg(c("hooks")?);
    let text = run(command.arg(here.path(file)).current_dir(here.folder()))?
        .success()?
        .stdout;
    let line = text.lines().find_map(|line| line.strip_prefix("Total: "));
    let line = line.with_context(|| format!("no total in {text}"))?;
    let number = line.split_whitespace().next().unwrap_or(line);
    number.parse().with_context(|| format!("no number: {line}"))
}

/// How much a sum of sites may differ from the total: estimates of sites are rounded one by one.
fn rounding(report: &Report) -> u64 {
    let is_exact = report.totals.allocations_error == 0;
    if is_exact {
        0
    } else {
        report.sites.len() as u64
    }
}

/// What was not freed: blocks and bytes.
fn unfreed(report: &Report) -> (u64, u64) {
    let totals = &report.totals;
    (
        totals.live_allocations + totals.left_at_exit_allocations,
        totals.live_bytes + totals.left_at_exit_bytes,
    )
}

/// Check that google-pprof and jeprof find the report's sums, exact or estimated: a reader must not scale an estimate again.
#[test]
fn pprofs_read_heap_profiles() -> Result<()> {
    let google = require_tool("google-pprof", "google-perftools")?;
    let jeprof = require_tool("jeprof", "libjemalloc-dev")?;
    for options in [EXACT, SAMPLED] {
        let (here, report) = recorded(options)?;
        let (blocks, bytes) = unfreed(&report);
        let totals = &report.totals;
        for (format, tool) in [("heap-text", &google), ("jeheap", &jeprof)] {
            export(&here, format, "out.heap", &[])?;
            for (option, expected) in [
                ("--inuse_space", bytes),
                ("--inuse_objects", blocks),
                ("--alloc_space", totals.allocated_bytes),
                ("--alloc_objects", totals.allocations),
            ] {
                let found = total(&here, tool, "out.heap", option)?;
                ensure!(
                    found.abs_diff(expected) <= rounding(&report),
                    "{format} {option} {options:?}: {found}, not {expected}"
                );
            }
            fs::remove_file(here.path("out.heap"))?;
        }
    }
    Ok(())
}

/// Check that pprof finds the functions at the addresses, and that Go's pprof reads the profile, too.
#[test]
fn heap_profiles_have_functions() -> Result<()> {
    let google = require_tool("google-pprof", "google-perftools")?;
    let go = require_tool("go", "golang-go")?;
    let (here, report) = recorded(EXACT)?;
    export(&here, "heap-text", "out.heap", &[])?;
    let mut command = Command::new(google);
    command.args(["--text", "--alloc_space"]).arg(c("hooks")?);
    let text = run(command.arg(here.path("out.heap")))?.success()?.stdout;
    for function in ["truth_pvalloc", "truth_malloc", "main"] {
        ensure!(text.contains(function), "no {function} in {text}");
    }
    let mut command = Command::new(go);
    command.args([
        "tool",
        "pprof",
        "-symbolize=none",
        "-sample_index=alloc_space",
        "-unit=B",
        "-top",
    ]);
    command
        .arg(here.path("out.heap"))
        .env("HOME", here.folder());
    let top = run(command.env("GOTOOLCHAIN", "local"))?.success()?.stdout;
    let total = format!("{}B total", report.totals.allocated_bytes);
    ensure!(top.contains(&total), "no {total} in {top}");
    Ok(())
}

/// The sum of the values of folded stacks.
fn folded_sum(text: &str) -> Result<u64> {
    let values = text.lines().map(|line| {
        let (_, value) = line.rsplit_once(' ').context("a line without a value")?;
        value.parse::<u64>().context("a value that is no number")
    });
    values.sum()
}

/// Check that heaptrack_print finds the report's allocations, leaks, temporary allocations and peak, exact or estimated.
#[test]
fn heaptrack_reads_its_file() -> Result<()> {
    let heaptrack = require_tool("heaptrack_print", "heaptrack")?;
    for options in [EXACT, SAMPLED] {
        let (here, report) = recorded(options)?;
        export(&here, "heaptrack", "out.heaptrack.gz", &[])?;
        let totals = &report.totals;
        for (cost, expected, tolerance) in [
            ("allocations", totals.allocations, 0),
            ("leaked", unfreed(&report).1, 0),
            ("peak", totals.peak_live_bytes, 0),
            // The last blocks before the peak may have been freed at once.
            ("temporary", totals.temporary_allocations, 2),
        ] {
            let stacks = here.path("stacks.txt");
            let mut command = Command::new(&heaptrack);
            command
                .arg(here.path("out.heaptrack.gz"))
                .arg("-F")
                .arg(&stacks);
            run(command.args(["--flamegraph-cost-type", cost]))?.success()?;
            let text = fs::read_to_string(stacks)?;
            let found = folded_sum(&text)?;
            ensure!(
                found.abs_diff(expected) <= tolerance + rounding(&report),
                "{cost} {options:?}: {found}, not {expected}"
            );
            ensure!(found == 0 || text.contains("main"), "no names: {text}");
        }
    }
    Ok(())
}

/// Check that speedscope's own importer finds each metric with the report's sum, and the functions, in its own format and in folded
/// stacks.
#[test]
fn speedscope_reads_its_file() -> Result<()> {
    let node = require_tool("node", "nodejs")?;
    let package = target().join("npm/node_modules/speedscope");
    ensure!(
        package.is_dir(),
        "{} is missing: run `cargo xtask test`",
        package.display()
    );
    let (here, report) = recorded(EXACT)?;
    let totals = &report.totals;
    let import = |file: &str| {
        let mut command = Command::new(&node);
        command
            .arg(workspace().join("tests/npm/import.cjs"))
            .arg(&package);
        let found = run(command.arg(here.path(file)))?.success()?.stdout;
        Ok::<Value, anyhow::Error>(serde_json::from_str(&found)?)
    };
    export(
        &here,
        "speedscope",
        "out.speedscope.json",
        &["--metric", "total-bytes"],
    )?;
    let group = import("out.speedscope.json")?;
    let profiles = group["profiles"].as_array().context("no profiles")?;
    for (name, expected) in [
        ("total bytes", totals.allocated_bytes),
        ("total allocations", totals.allocations),
        ("bytes left at exit", totals.left_at_exit_bytes),
        ("bytes at peak", totals.peak_live_bytes),
    ] {
        let profile = profiles.iter().find(|it| it["name"] == name);
        let profile = profile.with_context(|| format!("no {name}"))?;
        assert_eq!(profile["sum"], expected, "{name}");
        ensure!(
            profile["unit"]
                == if name.contains("bytes") {
                    "bytes"
                } else {
                    "none"
                }
        );
    }
    let first = group["first"]
        .as_u64()
        .and_then(|it| profiles.get(it as usize));
    let first = first.context("no profile is shown first")?;
    assert_eq!(first["name"], "total bytes");
    let functions = first["functions"].as_array().context("no functions")?;
    ensure!(
        functions.iter().any(|it| it == "truth_pvalloc"),
        "{functions:?}"
    );

    export(
        &here,
        "folded",
        "out.folded",
        &["--metric", "total-allocations"],
    )?;
    let group = import("out.folded")?;
    assert_eq!(group["profiles"][0]["sum"], totals.allocations);
    Ok(())
}

/// Check that the tables of the Firefox profiler's file have the lengths that they claim, that all indexes are inside, that callers come
/// first, and that each thread has the report's sum. (Its parser is in no package; it was run by hand.)
#[test]
fn the_file_of_the_firefox_profiler_is_consistent() -> Result<()> {
    let (here, report) = recorded(EXACT)?;
    let json = export(&here, "firefox", "out.json", &[])?;
    let profile: Value = serde_json::from_slice(&json)?;
    assert_eq!(profile["meta"]["preprocessedProfileVersion"], 60);
    let shared = &profile["shared"];
    let length = |table: &Value| -> Result<u64> {
        let length = table["length"].as_u64().context("no length")?;
        for (name, column) in table.as_object().context("no table")? {
            let is_right = column.as_array().is_none_or(|it| it.len() as u64 == length);
            ensure!(is_right, "{name} has another length");
        }
        Ok(length)
    };
    let inside = |table: &str, column: &str, least: u64, most: u64| -> Result<()> {
        length(&shared[table])?;
        for index in shared[table][column].as_array().context("no column")? {
            let is_inside = index.as_u64().is_none_or(|index| index < most);
            ensure!(is_inside, "{table}.{column}: {index} of {most}");
            ensure!(least == 0 || index.is_u64(), "{table}.{column}: {index}");
        }
        Ok(())
    };
    let texts = shared["stringArray"].as_array().context("no texts")?.len() as u64;
    let (frames, functions) = (
        length(&shared["frameTable"])?,
        length(&shared["funcTable"])?,
    );
    inside("stackTable", "frame", 1, frames)?;
    inside("frameTable", "func", 1, functions)?;
    inside("funcTable", "name", 1, texts)?;
    inside("funcTable", "source", 0, length(&shared["sources"])?)?;
    inside("sources", "filename", 1, texts)?;
    let callers = shared["stackTable"]["prefix"]
        .as_array()
        .context("no callers")?;
    for (at, caller) in callers.iter().enumerate() {
        ensure!(
            caller.as_u64().is_none_or(|it| it < at as u64),
            "{caller} calls {at}"
        );
    }
    let totals = &report.totals;
    let threads = profile["threads"].as_array().context("no threads")?;
    for (name, expected) in [
        ("total bytes", totals.allocated_bytes),
        ("bytes left at exit", totals.left_at_exit_bytes),
        ("bytes at peak", totals.peak_live_bytes),
    ] {
        let thread = threads.iter().find(|it| it["name"] == name);
        let table = &thread.with_context(|| format!("no {name}"))?["nativeAllocations"];
        length(table)?;
        let weights = table["weight"].as_array().context("no weights")?;
        let sum: u64 = weights.iter().filter_map(Value::as_u64).sum();
        assert_eq!(sum, expected, "{name}");
    }
    Ok(())
}

/// Check that the table has the report's sums, that JSON is the report's, and that both can be compressed.
#[test]
fn the_table_adds_up() -> Result<()> {
    let (here, report) = recorded(EXACT)?;
    let table = String::from_utf8(export(&here, "csv", "out.csv", &[])?)?;
    let mut lines = table.lines();
    let names: Vec<_> = lines.next().context("no names")?.split(',').collect();
    let column = names
        .iter()
        .position(|name| *name == "total_bytes")
        .context("no column")?;
    // Numbers come after names, which can have commas, and before the stack, whose functions of C have none.
    let behind = names.len() - column;
    let numbers = lines.filter_map(|line| line.rsplit(',').nth(behind - 1)?.parse::<u64>().ok());
    assert_eq!(numbers.sum::<u64>(), report.totals.allocated_bytes);

    export(&here, "json", "out.json.gz", &[])?;
    let json = run(Command::new("gzip")
        .args(["-dc"])
        .arg(here.path("out.json.gz")))?
    .success()?;
    let again = Report::parse(&json.stdout)?;
    assert_eq!(again.totals.allocated_bytes, report.totals.allocated_bytes);
    Ok(())
}

/// Check that the labels of pprof's profile select processes, and that a profile without changes has no difference.
#[test]
fn pprof_selects_and_subtracts() -> Result<()> {
    let go = require_tool("go", "golang-go")?;
    let here = Heaptrace::tracing()?;
    let shell = Path::new("/bin/sh");
    let program = c("hooks")?;
    let script = format!("{} > /dev/null; ls > /dev/null", program.path.display());
    let recording = here.record(
        &["--exact"],
        &[shell.as_os_str(), "-c".as_ref(), script.as_ref()],
    )?;
    let processes = recording.report.processes.iter();
    let process = processes.clone().find(|it| it.command == program.name());
    let expected = process.context("no process")?.totals.allocated_bytes;
    ensure!(expected < recording.report.totals.allocated_bytes);
    here.run(&["pprof", "-o", "heaptrace.pb.gz", "heaptrace.data"])?
        .success()?;
    let pprof = |options: &[&str]| {
        let mut command = Command::new(&go);
        command.args([
            "tool",
            "pprof",
            "-symbolize=none",
            "-sample_index=alloc_space",
            "-unit=B",
            "-nodefraction=0",
            "-top",
        ]);
        command
            .args(options)
            .arg(here.path("heaptrace.pb.gz"))
            .current_dir(here.folder());
        Ok::<String, anyhow::Error>(
            run(command
                .env("HOME", here.folder())
                .env("GOTOOLCHAIN", "local"))?
            .success()?
            .stdout,
        )
    };
    let focus = format!("process=^{}$", program.name());
    let top = pprof(&["-tagfocus", &focus])?;
    ensure!(
        top.contains(&format!("accounting for {expected}B")),
        "no {expected} in {top}"
    );
    let top = pprof(&["-diff_base=heaptrace.pb.gz"])?;
    ensure!(top.contains("accounting for 0"), "{top}");
    Ok(())
}

/// Check that two files are compared, in every format, and that a file does not differ from itself.
#[test]
fn differences_are_written() -> Result<()> {
    let (here, report) = recorded(EXACT)?;
    let other = here.path("other.data");
    fs::copy(here.data(), &other)?;
    here.record(&["--exact"], &["/bin/true"])?;
    let diff = |arguments: &[&str]| here.run(&[&["diff"], arguments].concat());
    let json = diff(&["other.data", "other.data", "--format", "json"])?
        .success()?
        .stdout;
    let json: Value = serde_json::from_str(&json)?;
    let rows = json["rows"].as_array().context("no rows")?;
    ensure!(
        !rows.is_empty() && rows.iter().all(|row| row["fate"] == "same"),
        "{json}"
    );
    let metric = ["--metric", "total-bytes"];
    let json = diff(&[
        "heaptrace.data",
        "other.data",
        "--format",
        "json",
        metric[0],
        metric[1],
    ])?;
    let json: Value = serde_json::from_str(&json.success()?.stdout)?;
    assert_eq!(
        json["new"]["totals"]["allocated_bytes"],
        report.totals.allocated_bytes
    );
    let text = diff(&["heaptrace.data", "other.data", metric[0], metric[1]])?
        .success()?
        .stdout;
    ensure!(
        text.contains("new") && text.contains("truth_pvalloc"),
        "{text}"
    );
    diff(&[
        "heaptrace.data",
        "other.data",
        "--format",
        "flamegraph",
        metric[0],
        metric[1],
    ])?
    .success()?;
    let svg = fs::read_to_string(here.path("heaptrace.diff.svg"))?;
    ensure!(svg.contains("truth_pvalloc"), "no functions");
    Ok(())
}
