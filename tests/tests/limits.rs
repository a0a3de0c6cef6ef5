//! Tests of bounded memory: events that don't fit are counted, and no freed block becomes a leak.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::Result;
use heaptrace_tests::{Child, Group, Heaptrace, bench_program, c, ready_pid, run, truths};

/// Check that if a ring overflows because its reader is stopped, lost events are counted, and no freed block stays live.
#[test]
fn a_full_ring_is_counted() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let mut target = Child::spawn(c("flood")?.command().arg("wait"))?;
    let pid = ready_pid(&target.line()?)?;
    let pid_text = pid.to_string();
    let mut tracer = here.start_record(&["--pid", &pid_text, "--ring-size", "16KiB"])?;
    here.wait_attached(&mut tracer, pid)?;
    tracer.signal(libc::SIGSTOP)?;
    target.go()?;
    let counts = truths(&target.line()?)?;
    tracer.signal(libc::SIGCONT)?;
    target.wait()?.success()?;
    let recording = here.finish(tracer)?;
    let truth = &counts[0];
    let seen = recording.report.truth(Some(pid));
    let lost = recording.report.lost();
    assert!(lost > 0, "a ring of 16 KiB held it all: {seen:?}");
    assert!(seen.allocations < truth.allocations);
    assert!(
        seen.allocations + lost >= truth.allocations,
        "{seen:?} and {lost} lost of {truth:?}"
    );
    truth.has_no_false_leak(&seen)
}

/// Check that the agent gets enough processor time beside a hundred threads that only allocate. The ring holds a small
/// part of their events: 45 ms, less than a busy machine may keep a thread from running. (Once, with an equal share of the
/// processors, half of the events were lost.)
#[test]
fn many_threads_do_not_starve_the_agent() -> Result<()> {
    let program = bench_program("grow")?;
    let mut command = vec!["--ring-size", "4MiB", "--"]
        .into_iter()
        .map(OsStr::new)
        .collect::<Vec<_>>();
    command.push(program.path.as_os_str());
    command.extend(["threads", "100", "300000"].map(OsStr::new));
    let here = Heaptrace::tracing()?;
    let recording = here.finish(here.start_record(&command)?)?;
    let totals = recording.report.totals;
    let lost = recording.report.lost();
    println!(
        "{lost} events lost beside {} allocations",
        totals.allocations
    );
    assert!(
        totals.allocations + lost >= 300_000,
        "{totals:?}, {lost} lost"
    );
    assert!(lost < 60_000, "{lost} lost");
    assert!(
        totals.unfreed_bytes() < 1 << 20,
        "lost events made a leak: {totals:?}"
    );
    Ok(())
}

/// Check that each block beyond `--max-live` is counted as lost.
#[test]
fn too_many_live_blocks_are_counted() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let recording = here.record(&["--max-live", "100"], &[c("flood")?])?;
    assert_eq!(recording.ended.code(), 0, "{}", recording.ended.stderr);
    let truth = recording.truth("main")?;
    let seen = recording.report.truth(Some(truth.pid));
    let lost = recording.report.lost();
    assert!(lost > 0, "all blocks found room: {seen:?}");
    assert_eq!(seen.allocations + lost, truth.allocations);
    let process = recording.report.process(truth.pid)?;
    assert_eq!(process.lost, lost, "not counted with the process");
    assert!(seen.unfreed_allocations() < truth.live_allocations);
    Ok(())
}

/// Check that the limit of frames truncates stacks, and keeps counts exact.
#[test]
fn a_limit_of_frames_cuts_stacks() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let recording = here.record(&["--max-stack-depth", "8"], &[c("deep")?])?;
    let report = &recording.report;
    report.check_nothing_lost()?;
    recording.truth("main")?.matches(&report.totals)?;
    assert!(report.quality.stacks_truncated > 0, "{:?}", report.quality);
    for site in &report.sites {
        let frames = site.stack.iter().filter(|frame| !frame.inlined).count();
        assert!(frames <= 8, "{frames} frames");
    }
    Ok(())
}

/// Check that a program with just enough memory in its control group runs while it is traced: heaptrace's records of its
/// blocks use other memory. With less memory it is killed, which shows that the limit works.
#[test]
fn records_use_no_memory_of_the_target() -> Result<()> {
    const BLOCKS: &str = "200000";
    let program = bench_program("grow")?;
    let inside = |group: &Group| {
        format!(
            "echo $$ > {}/cgroup.procs && exec {} blocks {BLOCKS} {BLOCKS}",
            group.folder().display(),
            program.path.display()
        )
    };
    let small = Group::of_memory("small", 8 << 20)?;
    let killed = run(Command::new("sh").args(["-c", &inside(&small)]))?;
    assert_ne!(
        killed.status.code(),
        Some(0),
        "8 MiB are enough without a tracer"
    );
    let group = Group::of_memory("enough", 24 << 20)?;
    let here = Heaptrace::tracing()?;
    let recording = here.record(&["--max-live", "400000"], &["sh", "-c", &inside(&group)])?;
    assert_eq!(recording.ended.code(), 0, "{}", recording.ended.stderr);
    recording.report.check_nothing_lost()?;
    let totals = &recording.report.totals;
    assert!(totals.allocations >= 200_000, "{totals:?}");
    // The limit has no room for both: 16 MB of blocks and pointers, and the kernel map's entry of each block.
    assert!(totals.peak_live_bytes > 12 << 20, "{totals:?}");
    Ok(())
}

/// Check that with little memory, the first of many short processes are merged by name, and that all sums stay exact.
#[test]
fn ended_processes_are_merged() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let script = "for i in $(seq 600); do /bin/ls /dev/null; done";
    // Little memory for processes, but enough for their allocations within a second, in which no process is merged.
    let options = [
        "--max-memory",
        "16MiB",
        "--max-live",
        "1000000",
        "--ring-size",
        "16MiB",
    ];
    let recording = here.record(&options, &["sh", "-c", script])?;
    assert_eq!(recording.ended.code(), 0, "{}", recording.ended.stderr);
    let report = &recording.report;
    report.check_nothing_lost()?;
    let of_ls = || {
        let named = report.processes.iter().filter(|it| it.command == "ls");
        named.map(|it| (it.merged.max(1), it.merged, it.totals.allocations))
    };
    assert_eq!(of_ls().map(|(stands_for, ..)| stands_for).sum::<u64>(), 600);
    // There is one merged record for each control group.
    let many = || of_ls().filter(|(_, merged, _)| *merged > 0);
    assert!((1..=4).contains(&many().count()), "{:?}", report.processes);
    let merged: u64 = many().map(|(_, merged, _)| merged).sum();
    assert!(merged >= 300, "{merged}");
    // Each of them does the same.
    let alone = of_ls().find(|(_, merged, _)| *merged == 0);
    let each = alone.map_or(0, |(.., allocations)| allocations);
    let all: u64 = many().map(|(.., allocations)| allocations).sum();
    assert!(
        each > 0 && all == merged * each,
        "{all} of {merged}, {each} each"
    );
    Ok(())
}
