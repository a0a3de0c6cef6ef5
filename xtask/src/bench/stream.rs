//! Measures the throughput from the kernel to the agent, and the cost of reading a large recording.
//!
//! Part of bench.

use std::ffi::OsString;
use std::fmt::Write;

use anyhow::Result;

use super::effort::Effort;
use super::machine::Machine;
use super::measured::{Measured, Tracing};
use super::mode::{EXACT, alone, data_file, measure_once};
use super::section::Section;
use crate::{process, run, workspace};

/// The sizes of the ring, from one that overflows easily to the default.
const RINGS: [Option<&str>; 5] = [
    Some("64KiB"),
    Some("256KiB"),
    Some("1MiB"),
    Some("4MiB"),
    None,
];

/// The number of distinct stacks in the recording that is read.
const STACKS: &str = "1000000";

/// Measures the parts that the filter selects.
pub(super) fn measure_all(machine: &Machine, effort: &Effort) -> Result<Section> {
    let mut text = String::new();
    if effort.wants("stream: ring") {
        ring(&mut text, machine, effort)?;
    }
    if effort.wants("stream: report") {
        report(&mut text)?;
    }
    Ok(Section {
        text,
        figures: Vec::new(),
    })
}

/// Measures the highest rate of calls: all processors allocate, and the agent needs one of them too.
fn ring(text: &mut String, machine: &Machine, effort: &Effort) -> Result<()> {
    let program = run::compile_c("xtask/bench/pair.c", &["-O2"])?;
    writeln!(text, "\n## Through the ring\n")?;
    writeln!(
        text,
        "Pairs of `malloc` and `free` without a pause, all recorded; every call is an event. The agent's time is divided by \
         the events that it received, and excludes its start.\n"
    )?;
    writeln!(
        text,
        "| threads | ring | calls per second | events lost | share | agent, ns per event |"
    )?;
    writeln!(text, "|--:|--|--:|--:|--:|--:|")?;
    let command = |seconds: f64, threads: usize| -> Vec<OsString> {
        vec![
            (&program).into(),
            seconds.to_string().into(),
            threads.to_string().into(),
        ]
    };
    let start = measure_once(&EXACT, &command(0.000_001, 1), &[])?.tracing;
    let start = start.map_or(0, |it| it.agent_cpu_ns);
    let mut counts = vec![1, machine.cpus];
    counts.dedup();
    for threads in counts {
        for ring in RINGS {
            let options: Vec<&str> = ring.iter().flat_map(|size| ["--ring-size", size]).collect();
            let measured = measure_once(&EXACT, &command(effort.seconds, threads), &options)?;
            let tracing = measured.tracing.unwrap_or_default();
            let rate = 2e9 / measured.nanoseconds * threads as f64;
            let all = tracing.events + tracing.lost;
            let agent = tracing.agent_cpu_ns.saturating_sub(start) as f64;
            println!(
                "    ring {ring:?}, {threads} threads: {rate:.0} calls/s, {} lost",
                tracing.lost
            );
            writeln!(
                text,
                "| {threads} | {} | {rate:.0} | {} | {:.2} % | {:.0} |",
                ring.unwrap_or("default"),
                tracing.lost,
                100.0 * tracing.lost as f64 / all.max(1) as f64,
                agent / tracing.events.max(1) as f64
            )?;
        }
    }
    Ok(())
}

fn report(text: &mut String) -> Result<()> {
    let program = run::compile_c("xtask/bench/grow.c", &["-O2"])?;
    let timed = run::compile_c("xtask/bench/timed.c", &["-O2"])?;
    let data = data_file()?;
    let mut record: Vec<OsString> = ["record", "--max-memory", "4GiB", "-o"]
        .map(OsString::from)
        .into();
    record.extend([data.clone().into(), "--".into(), program.into()]);
    record.extend(["stacks", STACKS, STACKS].map(OsString::from));
    process::output(&mut run::heaptrace(&record)?)?;
    let tracing = Tracing::of(&data)?;
    writeln!(text, "\n## Reading a large recording\n")?;
    writeln!(
        text,
        "{STACKS} stacks, each more than 20 frames deep, in {:.1} MiB.\n",
        tracing.file_bytes as f64 / f64::from(1 << 20)
    )?;
    writeln!(
        text,
        "| command | wall, s | processor time, s | peak memory, MiB |"
    )?;
    writeln!(text, "|--|--:|--:|--:|")?;
    let out = workspace::target_dir().join("xtask/bench.out");
    for words in [
        &["report"][..],
        &["report", "--by", "function"],
        &["flamegraph", "--metric", "total-allocations"],
        &["pprof"],
    ] {
        let mut command: Vec<OsString> =
            vec![(&timed).into(), workspace::heaptrace_binary().into()];
        command.extend(words.iter().map(OsString::from));
        if words.first() != Some(&"report") {
            command.extend(["-o".into(), out.clone().into()]);
        }
        command.push(data.clone().into());
        let Measured {
            nanoseconds,
            cpu_ns,
            peak_bytes,
            ..
        } = alone(&command)?;
        writeln!(
            text,
            "| `heaptrace {}` | {:.2} | {:.2} | {:.0} |",
            words.join(" "),
            nanoseconds / 1e9,
            cpu_ns.unwrap_or(0.0) / 1e9,
            peak_bytes.unwrap_or(0.0) / f64::from(1 << 20)
        )?;
    }
    Ok(())
}
