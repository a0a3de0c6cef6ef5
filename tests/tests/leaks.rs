//! Tests of `heaptrace leaks` with programs whose leaks are known.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use heaptrace_tests::{
    Child, Heaptrace, MINUTE, c, ready_pid, require_tool, run, target, until, workspace,
};
use serde_json::Value;

/// What `heaptrace leaks` finds, as JSON.
fn leaks(here: &Heaptrace, arguments: &[&str]) -> Result<Value> {
    let data = here.data();
    let data = data.to_str().context("an odd path")?;
    let all = [&["leaks", data, "--format", "json"], arguments].concat();
    Ok(serde_json::from_str(&here.run(&all)?.success()?.stdout)?)
}

/// The function that allocates, of each entry of a list.
fn functions(found: &Value, list: &str) -> Vec<String> {
    let entries = found[list].as_array().into_iter().flatten();
    let function = |it: &Value| it["stack"][0]["function"].as_str().map(str::to_owned);
    entries.filter_map(function).collect()
}

/// Check that the leak of a process that was attached to in the middle of its life is named, with its rate, at the default
/// sampling rate, and nothing else: also while the recording goes on, and that a suppression leaves it out.
#[test]
fn a_leak_is_named_in_a_running_process() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let mut target = Child::spawn(&mut c("leaks")?.command())?;
    let pid = ready_pid(&target.line()?)?;
    let pid_text = pid.to_string();
    // The default rate: by load, up to the default limit.
    let rate = ["--max-samples-per-second", "10000"];
    let arguments = ["--pid", &pid_text, "--interval", "500ms"];
    let mut tracer = here.start_record(&[&arguments[..], &rate].concat())?;
    here.wait_attached(&mut tracer, pid)?;
    until("the leak", 3 * MINUTE, || {
        let found = leaks(&here, &[])?;
        Ok(functions(&found, "growing") == ["leaks"])
    })?;
    here.run(&["leaks", here.data().to_str().unwrap_or_default()])?
        .success()?;
    tracer.signal(libc::SIGINT)?;
    let recording = here.finish(tracer)?;
    recording.report.check_nothing_lost()?;
    let found = leaks(&here, &[])?;
    assert_eq!(functions(&found, "growing"), ["leaks"], "{found}");
    let leak = &found["growing"][0];
    assert_eq!(leak["ever_freed"], false);
    let (rate, low, high) = (
        leak["bytes_per_second"].as_f64().unwrap_or(0.0),
        leak["bytes_per_second_low"].as_f64().unwrap_or(0.0),
        leak["bytes_per_second_high"].as_f64().unwrap_or(0.0),
    );
    // A block of 1,000 bytes after each wait of 5 ms, on a busy machine less often.
    assert!((1_000.0..=200_000.0).contains(&rate), "{rate}");
    assert!(low <= rate && rate <= high, "{low} {rate} {high}");
    assert!(leak["confidence"].as_f64().unwrap_or(0.0) >= 0.99);

    let known = here.path("known");
    std::fs::write(&known, "# accepted\nleak:^leaks$\n")?;
    let known = known.to_str().context("an odd path")?;
    let found = leaks(&here, &["--suppressions", known])?;
    assert!(functions(&found, "growing").is_empty(), "{found}");
    assert_eq!(found["suppressed"][0]["pattern"], "^leaks$");
    std::fs::write(known, "leak:\n")?;
    let data = here.data();
    let data = data.to_str().context("an odd path")?;
    let refused = here.run(&["leaks", data, "--suppressions", known])?;
    assert!(refused.stderr.contains("line 1"), "{}", refused.stderr);

    target.go()?;
    target.wait()?.success()?;
    Ok(())
}

/// Check that what a program left is, to the block and to the byte, what LeakSanitizer calls leaked.
#[test]
fn left_blocks_are_those_of_leak_sanitizer() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let checked: PathBuf = target().join("leaks-checked");
    let fixtures = workspace().join("tests/fixtures/c");
    run(Command::new("gcc")
        .args([
            "-O1",
            "-g",
            "-fsanitize=leak",
            "-pthread",
            "-fno-builtin",
            "-o",
        ])
        .arg(&checked)
        .arg(fixtures.join("leaks.c")))?
    .success()?;
    let told = run(Command::new(&checked).arg("300"))?;
    let summary = told
        .stderr
        .lines()
        .find_map(|line| line.strip_prefix("SUMMARY: LeakSanitizer: "))
        .with_context(|| format!("LeakSanitizer found nothing: {}", told.stderr))?;
    let program = c("leaks")?;
    here.record_all(&[program.path.to_str().context("an odd path")?, "300"])?;
    let found = leaks(&here, &[])?;
    assert_eq!(functions(&found, "left"), ["leaks"], "{found}");
    let left = &found["left"][0];
    let words = format!(
        "{} byte(s) leaked in {} allocation(s).",
        left["left_bytes"], left["left_allocations"]
    );
    assert_eq!(summary, words);
    Ok(())
}

/// Check that what memcheck calls definitely lost is, to the block and to the byte, what the program left at the same function.
#[test]
fn left_blocks_are_those_of_memcheck() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let program = c("leaks")?;
    let path = program.path.to_str().context("an odd path")?;
    let told = run(
        Command::new(require_tool("valgrind", "valgrind libc6-dbg")?).args([
            "--leak-check=full",
            "--",
            path,
            "300",
        ]),
    )?
    .success()?;
    let line = |words: &str| {
        let mut lines = told.stderr.lines();
        lines
            .find_map(|line| line.split_once(words).map(|it| it.1.to_owned()))
            .with_context(|| format!("memcheck says no `{words}`: {}", told.stderr))
    };
    let lost = line("definitely lost: ")?.replace(',', "");
    here.record_all(&[path, "300"])?;
    let found = leaks(&here, &[])?;
    assert_eq!(functions(&found, "left"), ["leaks"], "{found}");
    let left = &found["left"][0];
    let words = format!(
        "{} bytes in {} blocks",
        left["left_bytes"], left["left_allocations"]
    );
    assert_eq!(lost, words);
    // The function at which memcheck has seen the lost blocks.
    let by = told
        .stderr
        .lines()
        .filter(|it| it.contains(": leaks (leaks.c"));
    assert!(by.count() > 0, "{}", told.stderr);
    Ok(())
}

/// A mark, blocks and bytes that were allocated after it, live bytes, and what survived each later mark.
type Born = (u64, u64, u64, u64, Vec<u64>);

/// What a site allocated after each mark.
fn born(site: &Value) -> Vec<Born> {
    let generations = site["generations"].as_array().into_iter().flatten();
    let number = |it: &Value| it.as_u64().unwrap_or(u64::MAX);
    generations
        .map(|it| {
            let survived = it["survived"].as_array().into_iter().flatten();
            (
                number(&it["mark"]),
                number(&it["totals"]["allocations"]),
                number(&it["totals"]["allocated_bytes"]),
                number(&it["totals"]["live_bytes"]),
                survived.map(|it| number(&it["bytes"])).collect(),
            )
        })
        .collect()
}

/// Check that what a program keeps and frees in phases, with a mark by signal before each, is in the generations of its functions, to the
/// block and to the byte, and that a report since a mark has what came after it.
#[test]
fn generations_are_those_of_the_program() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let mut target = Child::spawn(&mut c("marks")?.command())?;
    let pid = ready_pid(&target.line()?)?;
    let mut tracer = here.start_record(&["--pid", &pid.to_string()])?;
    here.wait_attached(&mut tracer, pid)?;
    // The first phase is before the first mark.
    for phase in 1..=4 {
        target.go()?;
        target.line()?;
        if phase < 4 {
            tracer.signal(libc::SIGUSR2)?;
            until("the mark", MINUTE, || {
                let marks = leaks(&here, &[])?;
                Ok(marks["marks"].as_array().map(Vec::len) == Some(phase))
            })?;
        }
    }
    tracer.signal(libc::SIGINT)?;
    let recording = here.finish(tracer)?;
    recording.report.check_nothing_lost()?;
    let found = leaks(&here, &[])?;
    assert!(
        found["marks"]
            .as_array()
            .into_iter()
            .flatten()
            .all(|it| it["cause"] == "signal"),
        "{found}"
    );
    // Only one function has memory that survived a mark.
    assert_eq!(functions(&found, "survivors"), ["keeps"], "{found}");
    let keeps = &found["survivors"][0];
    assert_eq!(
        born(keeps),
        [
            (1, 20, 2_000, 2_000, vec![2_000, 2_000]),
            (2, 30, 3_000, 3_000, vec![3_000]),
            (3, 40, 4_000, 4_000, vec![]),
        ]
    );
    assert_eq!(keeps["totals"]["live_bytes"], 5_000);
    // The cache has given up what survived only the next mark.
    let all: Vec<_> = found["generations"]
        .as_array()
        .into_iter()
        .flatten()
        .collect();
    let survived = |at: usize| all[at]["survived"][0]["bytes"].as_u64();
    let live = |at: usize| all[at]["totals"]["live_bytes"].as_u64();
    assert_eq!(
        [0, 1, 2, 3].map(live),
        [1_000, 2_000, 3_000, 24_000].map(Some)
    );
    assert_eq!([survived(1), survived(2)], [22_000, 23_000].map(Some));

    let data = here.data();
    let data = data.to_str().context("an odd path")?;
    let since = here.run(&["report", data, "--since-mark", "2", "--format", "json"])?;
    let since: Value = serde_json::from_str(&since.success()?.stdout)?;
    assert_eq!(since["since_mark"]["number"], 2);
    assert_eq!(since["totals"]["live_bytes"], 27_000);
    assert_eq!(since["totals"]["allocated_bytes"], 47_000);
    target.wait()?.success()?;
    Ok(())
}

/// Check that a timer makes marks.
#[test]
fn a_timer_makes_marks() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let every = ["--mark-every", "200ms"];
    here.record(&every, &["sleep", "1.5"])?;
    let found = leaks(&here, &[])?;
    let marks: Vec<_> = found["marks"].as_array().into_iter().flatten().collect();
    let times: Vec<_> = marks.iter().filter_map(|it| it["at_ns"].as_u64()).collect();
    assert!((2..=60).contains(&marks.len()), "{times:?}");
    assert!(marks.iter().all(|it| it["cause"] == "timer"));
    assert!(
        times.windows(2).all(|it| it[1] - it[0] >= 100_000_000),
        "{times:?}"
    );
    Ok(())
}
