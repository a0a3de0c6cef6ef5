//! Tests of memory over time, and of parts of a run, with a program whose live bytes are known.

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{Child, Heaptrace, MINUTE, c, ready_pid, until};
use serde_json::Value;

/// The bytes of a step of the staircase.
const STEP: u64 = 1 << 20;

/// The megabytes that are live after each step.
const HEIGHTS: [u64; 8] = [1, 2, 3, 4, 3, 2, 1, 0];

/// What a command of heaptrace says of the data file, as JSON.
fn found(here: &Heaptrace, arguments: &[&str]) -> Result<Value> {
    let data = here.data();
    let data = data.to_str().context("an odd path")?;
    let all = [
        &arguments[..1],
        &[data, "--format", "json"],
        &arguments[1..],
    ]
    .concat();
    Ok(serde_json::from_str(&here.run(&all)?.success()?.stdout)?)
}

/// The values of a list of numbers.
fn numbers(list: &Value) -> Vec<u64> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(Value::as_u64).collect()
}

/// The bytes of the staircase at each time of a timeline.
fn stairs(timeline: &Value) -> Vec<u64> {
    let groups = timeline["groups"].as_array().into_iter().flatten();
    let mut climb = groups.filter(|it| it["name"] == "climb");
    climb
        .next()
        .map_or_else(Vec::new, |it| numbers(&it["values"]))
}

/// Check that memory over time is that of a program that climbs a staircase of known steps and comes down, also while it is recorded;
/// and that a report of the time between two snapshots has what was allocated and freed there, and what was live at its end.
#[test]
fn a_staircase_is_followed() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let mut target = Child::spawn(&mut c("staircase")?.command())?;
    let pid = ready_pid(&target.line()?)?;
    let pid_text = pid.to_string();
    // Only signals make snapshots, and these are where the test wants them.
    let arguments = ["--pid", &pid_text, "--exact", "--interval", "1h"];
    let mut tracer = here.start_record(&arguments)?;
    here.wait_attached(&mut tracer, pid)?;
    let mut times = Vec::new();
    for height in HEIGHTS {
        target.go()?;
        ensure!(target.line()?.contains("step"), "no step");
        tracer.signal(libc::SIGUSR1)?;
        until("the snapshot of a step", MINUTE, || {
            let timeline = found(&here, &["timeline", "--by", "function"])?;
            let stairs = stairs(&timeline);
            let is_there = stairs.last() == Some(&(height * STEP));
            if is_there && let Some(time) = numbers(&timeline["times_ns"]).last() {
                times.push(*time);
            }
            Ok(is_there)
        })?;
    }
    target.wait()?.success()?;
    let recording = here.finish(tracer)?;
    recording.report.check_nothing_lost()?;

    let timeline = found(&here, &["timeline", "--by", "function"])?;
    let mut stairs = stairs(&timeline);
    stairs.dedup();
    let mut expected: Vec<_> = HEIGHTS.iter().map(|height| height * STEP).collect();
    expected.insert(0, 0);
    assert_eq!(stairs, expected, "{timeline}");
    let peak = timeline["peak"]["value"].as_u64().unwrap_or(0);
    assert!((4 * STEP..4 * STEP + 3000).contains(&peak), "{peak}");

    // From the second step to the sixth: two were climbed, and two were left again.
    let at = |step: usize| format!("{}ms", times[step].div_ceil(1_000_000));
    let (from, to) = (at(1), at(5));
    let report = found(&here, &["report", "--from", &from, "--to", &to])?;
    let sites = report["sites"].as_array().into_iter().flatten();
    let climb = sites
        .clone()
        .find(|it| it["stack"][0]["function"] == "climb")
        .context("no staircase")?;
    let totals = &climb["totals"];
    assert_eq!(totals["allocated_bytes"], 2 * STEP, "{report}");
    assert_eq!(totals["freed_bytes"], 2 * STEP, "{report}");
    assert_eq!(totals["live_bytes"], 2 * STEP, "{report}");
    assert_eq!(totals["peak_live_bytes"], 4 * STEP, "{report}");
    assert_eq!(report["range"]["peak_is_least"], false);
    Ok(())
}
