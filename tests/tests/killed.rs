//! Tests of processes that are killed for lack of memory or crash: how they ended, and what they held, is recorded at once.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::chown;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{
    Child, Group, Heaptrace, KilledAt, MINUTE, Recording, Report, c, ready_pid, until,
};

/// The number of blocks that the fixture holds besides those that it grows by.
const BLOCKS: u64 = 20_000;

/// An interval that is longer than the test: all snapshots before the last have another reason.
const NEVER: [&str; 2] = ["--interval", "1h"];

/// Records a fixture that ends like this.
fn record(here: &Heaptrace, options: &[&str], how: &str, group: &str) -> Result<Recording> {
    let fixture = c("victim")?;
    let blocks = BLOCKS.to_string();
    let program = fixture.path.display().to_string();
    let recording = here.record(options, &[&program, how, &blocks, group])?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    recording.report.check_nothing_lost()?;
    Ok(recording)
}

/// Fails unless the report has all that the process held, in the fixture's function and in all.
fn has_all(recording: &Recording, report: &Report) -> Result<u32> {
    let truth = recording.truth("victim")?;
    ensure!(truth.live_allocations == BLOCKS, "{truth:?}");
    truth.matches(&report.truth(Some(truth.pid)))?;
    let totals = report.process(truth.pid)?.totals;
    ensure!(totals.left_at_exit_bytes >= truth.live_bytes && totals.live_bytes == 0);
    Ok(truth.pid)
}

/// Fails unless a snapshot was made soon after a time, long before the end of the run.
fn has_snapshot(here: &Heaptrace, report: &Report, at_ns: u64) -> Result<()> {
    let timeline = here.run(&["timeline", "--format", "json"])?.success()?;
    let timeline: serde_json::Value = serde_json::from_str(&timeline.stdout)?;
    let times = timeline["times_ns"].as_array().context("no times")?;
    let times: Vec<u64> = times.iter().filter_map(serde_json::Value::as_u64).collect();
    let soon = times.iter().find(|time| **time > at_ns).context("none")?;
    ensure!(
        soon - at_ns < 5_000_000_000 && *soon < report.duration_ns && times.len() == 3,
        "{times:?} after {at_ns} of {}",
        report.duration_ns
    );
    Ok(())
}

/// Check that a process that is killed for lack of memory is told with all that it held, that there is a snapshot of that moment, and that
/// the command of `--on-oom` runs then, as the user that called sudo, and finds it in the data file; and that the control group whose limit was
/// reached is named with the kernel's count of kills.
#[test]
fn a_process_out_of_memory_is_told() -> Result<()> {
    const NOBODY: u32 = 65_534;
    let here = Heaptrace::tracing()?;
    let group = Group::of_memory("victim", 32 << 20)?;
    chown(here.folder(), Some(NOBODY), Some(NOBODY))?;
    let script = "cp \"$HEAPTRACE_FILE\" then.data && echo \"$HEAPTRACE_PID $HEAPTRACE_COMMAND $(id -u)\" > told";
    let fixture = c("victim")?.path.display().to_string();
    let (blocks, folder) = (BLOCKS.to_string(), group.folder().display().to_string());
    let mut command = here.command(&["record", "--exact", "--no-mmap", "--on-oom", script])?;
    command
        .args(NEVER)
        .args(["--", &fixture, "oom", &blocks, &folder]);
    command.env("SUDO_UID", NOBODY.to_string());
    command.env("SUDO_GID", NOBODY.to_string());
    let recording = here.finish(Child::spawn(&mut command)?)?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    let report = &recording.report;
    report.check_nothing_lost()?;
    let pid = has_all(&recording, report)?;
    ensure!(report.within("group_exceed").left_at_exit_bytes > 10 << 20);
    let end = report.process(pid)?.end.as_ref().context("no end")?;
    ensure!(end.kind == "oom" && end.signal.is_none(), "{end:?}");
    has_snapshot(&here, report, end.at_ns)?;
    let limit = KilledAt {
        cgroup: group.name()?,
        limit_bytes: 32 << 20,
        oom_kills_before: 0,
        oom_kills: 1,
    };
    let found = &report.process(pid)?.killed_at;
    ensure!(found.as_ref() == Some(&limit), "{found:?}");
    let limited = format!(
        "; control group {} had reached its limit of 32.0 MiB (oom_kill 0 → 1)",
        group.name()?
    );
    ensure!(
        recording.ended.stderr.contains(&limited),
        "{}",
        recording.ended.stderr
    );

    let said = format!("victim ({pid}) was killed by the kernel for lack of memory at ");
    ensure!(
        recording.ended.stderr.contains(&said),
        "{}",
        recording.ended.stderr
    );
    let text = here.run(&["report"])?.success()?.stdout;
    ensure!(
        text.contains("  OOM kill     victim (") && text.contains(" group_exceed  group.h:"),
        "{text}"
    );

    let told = fs::read_to_string(here.path("told"))?;
    ensure!(told == format!("{pid} victim {NOBODY}\n"), "{told}");
    let then = here
        .run(&["report", "--format", "json", "then.data"])?
        .success()?;
    let then = Report::parse(&then.stdout)?;
    has_all(&recording, &then)?;
    ensure!(then.duration_ns < report.duration_ns);
    Ok(())
}

/// Check that a process that crashes is told with its signal and all that it held, that there is a snapshot of that moment, and that other
/// ends are known, too.
#[test]
fn a_crash_is_told() -> Result<()> {
    for (how, kind, number, told) in [
        ("segv", "signal", 11, Some("crashed by SIGSEGV")),
        ("kill", "signal", 9, Some("was killed by SIGKILL")),
        ("exit", "exit", 3, None),
    ] {
        let here = Heaptrace::tracing()?;
        let recording = record(&here, &NEVER, how, "")?;
        let report = &recording.report;
        let pid = has_all(&recording, report)?;
        let end = report.process(pid)?.end.as_ref().context("no end")?;
        ensure!(
            end.kind == kind && end.signal.or(end.status) == Some(number),
            "{end:?}"
        );
        let text = here.run(&["report"])?.success()?.stdout;
        match told {
            Some(told) => {
                ensure!(
                    text.contains(told) && text.contains(" truth_held  victim.c:"),
                    "{text}"
                );
                has_snapshot(&here, report, end.at_ns)?;
            }
            None => ensure!(!text.contains(&format!("victim ({pid}) ")), "{text}"),
        }
    }
    Ok(())
}

/// Check that all processes of a container are told with what they held when its first process ends, because the kernel kills the others
/// then, and that there is a snapshot of that moment.
#[test]
fn the_end_of_a_container_is_told() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let fixture = c("victims")?.path.display().to_string();
    let options = ["--no-mmap", "--interval", "1h"];
    let recording = here.record(&options, &[&fixture, "init", &BLOCKS.to_string()])?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    let report = &recording.report;
    report.check_nothing_lost()?;
    let text = here.run(&["report"])?.success()?.stdout;
    let timeline = here.run(&["timeline", "--format", "json"])?.success()?;
    let timeline: serde_json::Value = serde_json::from_str(&timeline.stdout)?;
    let times = timeline["times_ns"].as_array().context("no times")?;
    for role in ["first", "second", "third"] {
        let truth = recording.truth(role)?;
        ensure!(truth.live_allocations == BLOCKS, "{truth:?}");
        truth.matches(&report.truth(Some(truth.pid)))?;
        let end = report.process(truth.pid)?.end.as_ref().context("no end")?;
        let is_killed = role != "first";
        let (kind, number) = if is_killed {
            ("signal", 9)
        } else {
            ("exit", 3)
        };
        ensure!(
            end.kind == kind && end.signal.or(end.status) == Some(number),
            "{role}: {end:?}"
        );
        let told = format!("victims ({}) was killed by SIGKILL", truth.pid);
        ensure!(text.contains(&told) == is_killed, "{role}\n{text}");
        let mut soon = times.iter().filter_map(serde_json::Value::as_u64);
        ensure!(
            soon.any(|time| time > end.at_ns && time - end.at_ns < 5_000_000_000),
            "{times:?} after {}",
            end.at_ns
        );
    }
    Ok(())
}

/// The limits of live memory that were exceeded up to now, by the data file.
fn exceeded(here: &Heaptrace) -> Result<Vec<serde_json::Value>> {
    let ended = here.run(&["report", "--format", "json"])?.success()?;
    let report: serde_json::Value = serde_json::from_str(&ended.stdout)?;
    Ok(report["exceeded"].as_array().cloned().unwrap_or_default())
}

/// Whether so much was live, or a small block more, which the fixture makes and frees between its steps.
fn is_about(exceeded: &serde_json::Value, bytes: u64) -> bool {
    let live = exceeded["live_bytes"].as_u64();
    live.is_some_and(|live| (bytes..=bytes + 4000).contains(&live))
}

/// Check that a process exceeds a limit of live memory once, and again when it has doubled, that each time there is a mark and a snapshot at once, and
/// that the memory of a control group's processes counts together.
#[test]
fn limits_of_live_memory_make_marks() -> Result<()> {
    const STEP: u64 = 1 << 20;
    let here = Heaptrace::tracing()?;
    let fixture = c("staircase")?;
    // No step is near this limit or its double: what the fixture frees at once must not exceed them.
    let options = [&NEVER[..], &["--when-live-exceeds", "1600KiB", "--"]].concat();
    let mut arguments: Vec<&OsStr> = options.iter().map(OsStr::new).collect();
    arguments.push(fixture.as_ref());
    let mut tracer = here.start_record(&arguments)?;
    let pid = ready_pid(&tracer.line()?)?;
    for (steps, limits) in [(2, 1), (2, 2)] {
        for _ in 0..steps {
            tracer.go()?;
            tracer.line()?;
        }
        until("an exceeded limit", MINUTE, || {
            Ok(exceeded(&here)?.len() == limits)
        })?;
    }
    // The fixture ends with its input.
    tracer.wait()?.success()?;
    for (at, it) in exceeded(&here)?.iter().enumerate() {
        let (mark, height) = (at as u64 + 1, 2 * (at as u64 + 1));
        ensure!(it["mark"] == mark && it["kind"] == "process", "{it}");
        ensure!(it["name"] == format!("staircase ({pid})"), "{it}");
        ensure!(it["limit_bytes"] == mark * (1600 << 10), "{it}");
        ensure!(is_about(it, height * STEP), "{it}");
    }
    let words = format!("live memory of staircase ({pid}) exceeded 1.6 MiB, ");
    for command in ["report", "leaks", "timeline"] {
        let text = here.run(&[command])?.success()?.stdout.replace('\n', " ");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        ensure!(
            text.contains(&words) && text.contains("exceeded 3.1 MiB, "),
            "{text}"
        );
    }
    let since = ["report", "--format", "json", "--since-mark", "1"];
    let since: serde_json::Value = serde_json::from_str(&here.run(&since)?.success()?.stdout)?;
    let live = since["totals"]["left_at_exit_bytes"].as_u64();
    ensure!(live == Some(2 * STEP), "{}", since["totals"]);

    let here = Heaptrace::tracing()?;
    let mut both = Vec::new();
    for _ in 0..2 {
        let mut target = Child::spawn(&mut fixture.command())?;
        let pid = ready_pid(&target.line()?)?.to_string();
        both.push((target, pid));
    }
    let [(one, first), (other, second)] = both.as_mut_slice() else {
        anyhow::bail!("two targets")
    };
    let limit = [
        "--when-live-exceeds",
        "1536KiB:cgroup",
        "--pid",
        first,
        "--pid",
        second,
    ];
    let mut tracer = here.start_record(&[&NEVER[..], &limit].concat())?;
    here.wait_attached(&mut tracer, other.pid())?;
    for target in [&mut *one, other] {
        target.go()?;
        target.line()?;
    }
    until("an exceeded limit", MINUTE, || {
        Ok(exceeded(&here)?.len() == 1)
    })?;
    let it = exceeded(&here)?.remove(0);
    ensure!(it["kind"] == "cgroup" && is_about(&it, 2 * STEP), "{it}");
    tracer.signal(libc::SIGINT)?;
    here.finish(tracer)?;
    Ok(())
}
