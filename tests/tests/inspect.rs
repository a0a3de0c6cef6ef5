//! Tests of the classes of live blocks, by their memory: of a running process, in a recording, and in a core file, of a stripped program; and of
//! what CPython allocates.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{Child, Heaptrace, MINUTE, require_tool, run, until, workspace};
use serde_json::Value;

/// The answer about addresses, as JSON.
fn asked(here: &Heaptrace, words: &[&str]) -> Result<Value> {
    let ended = here.run(&[&["who", "--format", "json"], words].concat())?;
    Ok(serde_json::from_str(&ended.success()?.stdout)?)
}

/// The blocks that hold the addresses.
fn blocks(answer: &Value) -> Vec<&Value> {
    let addresses = answer["addresses"].as_array().into_iter().flatten();
    addresses.map(|it| &it["processes"][0]["block"]).collect()
}

/// The class of each block; empty if none is known.
fn classes(answer: &Value) -> Vec<&str> {
    let blocks = blocks(answer).into_iter();
    blocks
        .map(|it| it["class"]["name"].as_str().unwrap_or_default())
        .collect()
}

/// The live blocks of the types that were found by one way alone.
fn types(here: &Heaptrace, data: &str, way: &str) -> Result<Vec<(String, u64)>> {
    let json = here
        .run(&["types", "--format", "json", data])?
        .success()?
        .stdout;
    let types: Value = serde_json::from_str(&json)?;
    let all = types["types"].as_array().context("no list")?;
    let found = all
        .iter()
        .filter(|it| it["ways"] == serde_json::json!([way]));
    let mut found: Vec<_> = found
        .map(|it| {
            let blocks = it["totals"]["live_allocations"]
                .as_u64()
                .unwrap_or_default();
            (it["name"].as_str().unwrap_or_default().to_owned(), blocks)
        })
        .collect();
    found.sort();
    Ok(found)
}

/// Check that each object of a stripped program has its class, in a running process, in a recording and in a core file; that a stack has a type only if
/// all of its blocks are of one class; and that what has no virtual functions has none.
#[test]
fn objects_of_a_stripped_program_have_their_classes() -> Result<()> {
    let (here, without) = (Heaptrace::tracing()?, Heaptrace::tracing()?);
    let program = here.path("classes");
    let source = workspace().join("tests/fixtures/types/classes.cc");
    let built = Command::new("g++")
        .args(["-O1", "-s", "-o"])
        .arg(&program)
        .arg(source)
        .output()?;
    ensure!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    let mut target = Child::spawn(&mut Command::new(&program))?;
    assert_eq!(target.line()?, "ready");
    let pid = target.pid();
    let pid_text = pid.to_string();
    let address = target.line()?;

    let question = [
        "who",
        &address,
        "--pid",
        &pid_text,
        "--inspect-live",
        "--format",
        "json",
    ];
    let mut tracer = Child::spawn(&mut here.command(&question)?)?;
    until("the tracer's beginning", MINUTE, || {
        ensure!(tracer.running()?, "it ended: {}", tracer.stderr());
        Ok(tracer.stderr().contains("tracing until"))
    })?;
    target.go()?;
    assert_eq!(target.line()?, address);
    let answer: Value = serde_json::from_str(&tracer.wait()?.success()?.stdout)?;
    assert_eq!(classes(&answer), ["Square"], "{answer}");

    let mut inspected = here.start_record(&["--pid", &pid_text, "--blocks", "--inspect-live"])?;
    here.wait_attached(&mut inspected, pid)?;
    let mut other = without.start_record(&["--pid", &pid_text, "--blocks"])?;
    without.wait_attached(&mut other, pid)?;
    target.go()?;
    let addresses = target.line()?;
    let core = here.path("core");
    let save = format!("generate-core-file {}", core.display());
    let gdb = require_tool("gdb", "gdb")?;
    run(Command::new(gdb)
        .args([
            "-nx",
            "-batch",
            "-ex",
            "set debuginfod enabled off",
            "-p",
            &pid_text,
        ])
        .args(["-ex", &save]))?
    .success()?;
    let core = core.to_str().context("no text")?;
    // The process is still there.
    inspected.signal(2)?;
    other.signal(2)?;
    here.finish(inspected)?.report.check_nothing_lost()?;
    without.finish(other)?.report.check_nothing_lost()?;
    target.go()?;
    target.wait()?.success()?;

    let (data, plain) = (here.data(), without.data());
    let (data, plain) = (data.display().to_string(), plain.display().to_string());
    let json = here
        .run(&["types", "--format", "json", &data])?
        .success()?
        .stdout;
    let listed: Value = serde_json::from_str(&json)?;
    let expected = serde_json::json!([
        {"name": "Circle", "blocks": 13, "bytes": 10 * 24 + 3 * 48},
        {"name": "Square", "blocks": 8, "bytes": 5 * 40 + 3 * 48},
        {"blocks": 4, "bytes": 4 * 48},
    ]);
    assert_eq!(listed["live_classes"], expected, "{listed}");
    let expected = [("Circle".to_owned(), 10), ("Square".to_owned(), 5)];
    assert_eq!(types(&here, &data, "vtable")?, expected);
    assert_eq!(types(&here, &plain, "vtable")?, []);
    let expected = ["Circle", "Circle", "Square", ""];
    let addresses: Vec<&str> = addresses.split(' ').collect();
    for (file, more) in [
        (&data, &[][..]),
        (&plain, &["--core", core, "--inspect-live"]),
    ] {
        let mut words = addresses.clone();
        words.push(file);
        words.extend(more);
        let answer = asked(&here, &words)?;
        assert_eq!(classes(&answer), expected, "{answer}");
        let typed = blocks(&answer).into_iter().map(|it| &it["type"]["name"]);
        let by_stack = if more.is_empty() {
            "Circle".into()
        } else {
            Value::Null
        };
        assert_eq!(
            typed.collect::<Vec<_>>(),
            [&by_stack, &Value::Null, &Value::Null, &Value::Null]
        );
    }
    let text = here.run(&["who", addresses[2], &data])?.success()?.stdout;
    assert!(
        text.contains("begins with an object of class Square"),
        "{text}"
    );
    Ok(())
}

/// Check that what Debian's CPython, which has no debug information, allocates for objects of some types is named, to the block.
#[test]
fn objects_of_python_are_named() -> Result<()> {
    const PROGRAM: &str = "
import posix
tuples = [tuple(range(2000 + i)) for i in range(7)]
texts = [posix.urandom(5000 + i) for i in range(7)]
posix._exit(0)
";
    let here = Heaptrace::tracing()?;
    let python = "/usr/bin/python3";
    let mut command = here.command(&[
        "record", "--exact", "-o", "py.data", "--", python, "-I", "-S", "-c", PROGRAM,
    ])?;
    let ended = run(command.env("PYTHONMALLOC", "malloc"))?.success()?;
    let json = here
        .run(&["report", "--format", "json", "py.data"])?
        .success()?
        .stdout;
    let report: Value = serde_json::from_str(&json)?;
    let sites = report["sites"]
        .as_array()
        .with_context(|| ended.stderr.clone())?;
    let mut found = std::collections::BTreeMap::new();
    for site in sites.iter().filter(|it| it["type"]["way"] == "runtime") {
        let blocks = site["totals"]["left_at_exit_allocations"]
            .as_u64()
            .unwrap_or_default();
        let bytes = site["totals"]["left_at_exit_bytes"]
            .as_u64()
            .unwrap_or_default();
        let name = site["type"]["name"].as_str().unwrap_or_default();
        if blocks == 7 && bytes > 7 * 4000 {
            found.insert(name.to_owned(), bytes);
        }
    }
    let tuples: u64 = (0..7).map(|i| 40 + 8 * (2000 + i)).sum();
    assert_eq!(found.get("tuple"), Some(&tuples), "{found:?}");
    let texts: u64 = (0..7).map(|i| 33 + 5000 + i).sum();
    assert_eq!(found.get("bytes"), Some(&texts), "{found:?}");
    Ok(())
}
