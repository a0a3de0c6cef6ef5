//! Tests of `heaptrace leaks` with programs whose leaks are known.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use heaptrace_tests::{Child, Heaptrace, MINUTE, c, ready_pid, run, target, until, workspace};
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
