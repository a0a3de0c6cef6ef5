//! The data file of a long run: its size beside heaptrack's, the time of each command that reads it, and what options add.
//!
//! Part of bench. It must not know what is in a data file.

use std::ffi::OsString;
use std::fmt::Write;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};

use super::beside;
use super::cell::{cell, middle};
use super::effort::Effort;
use super::machine::Machine;
use super::measured::Runs;
use super::mode::{EXACT, measure_once};
use super::section::Section;
use super::stats::Spread;
use super::{mode, programs};
use crate::{apt, process, run};

/// The Debian packages of the program, and of the profiler to compare with.
const PACKAGES: [&str; 2] = ["python3", "heaptrack"];

/// The round trips of the long run, which make 5.95 million allocations.
const LONG: u32 = 155;

/// The round trips of the runs with each option.
const SHORT: u32 = 15;

/// The commands that read the file. An output goes to a file beside it.
const COMMANDS: [&str; 21] = [
    "report",
    "report --details",
    "report --by function",
    "report --source",
    "report --format json -o",
    "leaks",
    "leaks --format json",
    "timeline",
    "timeline --format svg -o",
    "types",
    "diff BOTH",
    "flamegraph -o",
    "pprof -o",
    "export --format folded -o",
    "export --format heap-text -o",
    "export --format jeheap -o",
    "export --format speedscope -o",
    "export --format firefox -o",
    "export --format heaptrack --filter process=python3 -o",
    "export --format json -o",
    "export --format csv -o",
];

/// What a recording can keep beside the sums.
const OPTIONS: [(&str, &[&str]); 4] = [
    ("(none)", &[]),
    ("`--histogram`", &["--histogram"]),
    ("`--blocks`", &["--blocks"]),
    ("`--events`", &["--events"]),
];

/// Measures what the filter selects.
pub(super) fn measure_all(effort: &Effort) -> Result<Section> {
    apt::ensure(&PACKAGES, "for the program to record")?;
    let folder = programs::folder()?;
    let mut text = String::new();
    if effort.wants("file: long run") {
        long_run(&mut text, &folder, effort.rounds)?;
    }
    if effort.wants("file: options") {
        options(&mut text, &folder, effort.rounds)?;
    }
    Ok(Section {
        text,
        figures: Vec::new(),
    })
}

pub(super) fn head(machine: &Machine, rounds: u32) -> String {
    format!(
        "# Data files\n\n\
         Written by `cargo xtask bench --only file`; run it for your own machine.\n\n\
         {machine}\n\
         Times are medians of {rounds} rounds, with the smallest and the largest in parentheses. The program is CPython with `PYTHONMALLOC=malloc`, \
         which converts a document to JSON and back.\n"
    )
}

/// The size of the file of a long run, and the time that each command needs for it.
fn long_run(text: &mut String, folder: &Path, rounds: u32) -> Result<()> {
    let command = programs::round_trips(folder, LONG)?;
    let timed = run::compile_c("xtask/bench/timed.c", &["-O2"])?;
    let words = beside::in_front(&[timed.clone().into()], &command);
    let measured = measure_once(&EXACT, &words, &[])?;
    let tracing = measured.tracing.context("heaptrace wrote no file")?;
    // The next recording replaces it.
    let data = folder.join("long.data");
    fs::rename(mode::data_file_path(), &data).context("cannot keep the data file")?;
    let theirs = heaptrack(folder, &command)?;
    writeln!(text, "\n## A long run\n")?;
    writeln!(
        text,
        "{LONG} round trips: {} allocations and frees, in {:.1} s under heaptrace. The file has {} bytes, heaptrack's of the same program {theirs} \
         ({:.2} of it). Each command reads it without rights, and writes what it writes to a file.\n",
        tracing.events,
        measured.nanoseconds / 1e9,
        tracing.file_bytes,
        tracing.file_bytes as f64 / theirs as f64
    )?;
    writeln!(text, "| command | ms |\n|--|--:|")?;
    for words in COMMANDS {
        let mut times = Vec::new();
        for _ in 0..rounds {
            times.push(read(&data, words)?);
        }
        println!("    {words}: {} ms", middle(&times, 1.0, 0));
        let shown = words.trim_end_matches(" -o").trim_end_matches(" BOTH");
        writeln!(text, "| `{shown}` | {} |", cell(Spread::of(&times), 0))?;
    }
    Ok(())
}

/// Reads a data file with a command, and returns the milliseconds that it took.
fn read(data: &Path, words: &str) -> Result<f64> {
    let mut args: Vec<OsString> = Vec::new();
    for word in words.split(' ') {
        match word {
            "BOTH" => args.extend([data, data].map(OsString::from)),
            word => args.push(word.into()),
        }
    }
    // `report` has only standard output.
    if args.first().is_some_and(|it| it == "report") {
        args.retain(|it| it != "-o");
    }
    if args.last().is_some_and(|it| it == "-o") {
        args.push(data.with_extension("out").into());
        args.push("--force".into());
    }
    if !words.ends_with("BOTH") {
        args.push(data.into());
    }
    let printed = data.with_extension("printed");
    let printed =
        File::create(&printed).with_context(|| format!("cannot write {}", printed.display()))?;
    let mut command = run::heaptrace(&args)?;
    let began = Instant::now();
    process::run(command.stdin(Stdio::null()).stdout(printed))?;
    Ok(began.elapsed().as_secs_f64() * 1e3)
}

/// The size of heaptrack's file of a command.
fn heaptrack(folder: &Path, command: &[OsString]) -> Result<u64> {
    let path = folder.join("long.heaptrack");
    let tracer = ["heaptrack".into(), "-o".into(), OsString::from(&path)];
    let words = beside::in_front(&tracer, command);
    let (first, rest) = words.split_first().context("an empty command")?;
    process::output(Command::new(first).args(rest))?;
    let named = |end: &str| PathBuf::from(format!("{}.{end}", path.display()));
    let mut files = ["zst", "gz"].into_iter().map(named);
    let file = files
        .find(|it| it.exists())
        .context("heaptrack wrote no file")?;
    Ok(fs::metadata(file)?.len())
}

/// What options of `record` cost, in pairs of runs.
fn options(text: &mut String, folder: &Path, rounds: u32) -> Result<()> {
    let command = programs::round_trips(folder, SHORT)?;
    let timed = run::compile_c("xtask/bench/timed.c", &["-O2"])?;
    let words = beside::in_front(&[timed.into()], &command);
    let mut all = OPTIONS.map(|(name, options)| (name, options, Runs::default()));
    for round in 1..=rounds {
        for (name, options, runs) in &mut all {
            let measured = measure_once(&EXACT, &words, options)?;
            println!(
                "    {name}, round {round} of {rounds}: {:.2} s",
                measured.nanoseconds / 1e9
            );
            runs.0.push(measured);
        }
    }
    writeln!(text, "\n## What options add\n")?;
    writeln!(
        text,
        "{SHORT} round trips, all recorded. The runs of a round follow each other, and each is compared with the one without options of its round: the \
         program's time, the agent's processor time, and the file.\n"
    )?;
    writeln!(
        text,
        "| option | s | program | agent | file, KiB | file | lost |\n|--|--:|--:|--:|--:|--:|--:|"
    )?;
    let base = all[0].2.clone();
    for (name, _, runs) in &all {
        let of = |figure| Spread::of_ratios(&runs.tracing(figure), &base.tracing(figure));
        writeln!(
            text,
            "| {name} | {} | {} | {} | {} | {} | {} |",
            middle(&runs.nanoseconds(), 1e9, 2),
            cell(runs.ratio_to(&base), 2),
            cell(of(|it| it.agent_cpu_ns), 2),
            middle(&runs.tracing(|it| it.file_bytes), 1024.0, 0),
            cell(of(|it| it.file_bytes), 2),
            runs.lost()
        )?;
    }
    Ok(())
}
