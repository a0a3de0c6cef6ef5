//! `record --reachable`: how long processes with much memory are stopped, what is read then, and what a search takes.
//!
//! Part of bench. It must not know how memory is searched.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::cell::cell;
use super::effort::Effort;
use super::machine::Machine;
use super::measured::Tracing;
use super::mode;
use super::section::Section;
use super::stats::Spread;
use crate::{process, run, workspace};

/// The MiB of blocks that the program holds.
const SIZES: [u64; 4] = [64, 256, 1024, 2048];

/// What the program does meanwhile, with its argument.
const BEHAVIOURS: [(&str, &str); 2] = [("sleeps", "0"), ("writes pointers", "1")];

/// The options of the searches.
const STOPS: [(&str, &[&str]); 2] = [("usual", &[]), ("whole", &["--max-stop", "10s"])];

/// How long a search may take.
const PATIENCE: Duration = Duration::from_secs(180);

/// The milliseconds that a process may be stopped for each GiB.
const TARGET: f64 = 50.0;

/// One search, as the data file has it, and its time.
struct Search {
    stopped_ms: f64,
    memory: f64,
    read: f64,
    later: f64,
    unreachable: u64,
    seconds: f64,
}

/// What the rounds of one row have shown.
struct Row {
    searches: Vec<Search>,
    longest_pause_ms: f64,
    tracing: Tracing,
}

/// A recording that goes on.
struct Recording {
    tracer: Child,
    lines: BufReader<std::process::ChildStdout>,
}

/// Measures what the filter selects.
pub(super) fn measure_all(effort: &Effort) -> Result<Section> {
    let program = run::compile_c("xtask/bench/reached.c", &["-O2"])?;
    let free = free_mebibytes()?;
    let mut text = String::from(
        "| blocks, MiB | the program | stop | stopped, ms | ms/GiB | noticed, ms | read then, MiB | read afterwards | search, s | agent, MiB |\n\
         |--:|--|--|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    let mut worst: f64 = 0.0;
    let mut has_any = false;
    for size in SIZES {
        for (behaviour, argument) in BEHAVIOURS {
            for (stop, options) in STOPS {
                if !effort.wants(&format!("reachable: {size} {behaviour} {stop}")) {
                    continue;
                }
                if size * 3 > free {
                    println!("    {size} MiB are left out: {free} MiB are free");
                    continue;
                }
                let words = [&size.to_string(), argument];
                let row = measure(&program, &words, options, effort.rounds)
                    .with_context(|| format!("{size} MiB, {behaviour}, {stop}"))?;
                has_any = true;
                if stop == "usual" && size >= 1024 {
                    let per_gib = of(&row, |it| it.stopped_ms / gib(it.memory).max(1.0));
                    worst = per_gib.map_or(worst, |it| worst.max(it.median));
                }
                write_row(&mut text, size, behaviour, stop, &row)?;
            }
        }
    }
    if !has_any {
        text.clear();
    } else if worst > 0.0 {
        let verdict = if worst < TARGET { "met" } else { "missed" };
        writeln!(
            text,
            "\nTarget: with a GiB or more, stopped for less than {TARGET:.0} ms for each GiB by default: {verdict} ({worst:.1} ms)."
        )?;
    }
    Ok(Section {
        text,
        figures: Vec::new(),
    })
}

pub(super) fn head(machine: &Machine, rounds: u32) -> String {
    format!(
        "# Blocks that nothing points to: the cost of a search\n\n\
         Written by `cargo xtask bench --only reachable`; run it for your own machine.\n\n\
         {machine}\n\
         A program holds blocks of 1,008 bytes in lists, with nine pointers each, and all of them can be reached. It is recorded by `record --reachable`, exactly, and \
         searched {rounds} times, at marks. Figures are medians, with the smallest and the largest in parentheses.\n\n\
         - **stop**: `usual` is the default, 35 ms for each GiB, or 35 ms if it has less; `whole` has `--max-stop 10s`, so all memory is read in the stop.\n\
         - **stopped**: the time from the request that stops the first thread until the last one goes on. **noticed** is the longest time by which any sleep of the \
         program was too long, in all rounds.\n\
         - **read afterwards**: how often all memory was read once more after the stop, while the program ran; - if all of it was read in the stop.\n\
         - **search**: from the mark until `heaptrace leaks` shows the result. **agent** is heaptrace's peak memory.\n\
         - No search may find an unreachable block: the measurement fails then.\n\n"
    )
}

/// Records the program, and searches it some times.
fn measure(program: &Path, words: &[&str], options: &[&str], rounds: u32) -> Result<Row> {
    let data = mode::data_file()?;
    let recording = Recording::start(program, words, options, &data)?;
    let searches = (0..rounds)
        .map(|round| {
            let search = recording.search(&data)?;
            println!(
                "    {} MiB, busy {}, {options:?}, round {} of {rounds}: stopped {:.1} ms, search {:.2} s",
                words[0],
                words[1],
                round + 1,
                search.stopped_ms,
                search.seconds
            );
            ensure!(
                search.unreachable == 0,
                "{} reachable blocks were called unreachable",
                search.unreachable
            );
            Ok(search)
        })
        .collect::<Result<Vec<_>>>();
    let longest_pause_ms = recording.end()?;
    Ok(Row {
        searches: searches?,
        longest_pause_ms,
        tracing: Tracing::of(&data)?,
    })
}

impl Recording {
    fn start(program: &Path, words: &[&str], options: &[&str], data: &Path) -> Result<Self> {
        let mut args: Vec<OsString> = vec!["record".into(), "-o".into(), data.into()];
        let usual = [
            "--reachable",
            "--interval",
            "100ms",
            "--max-live",
            "4000000",
        ];
        args.extend(usual.iter().chain(options).map(OsString::from));
        args.extend([OsString::from("--"), program.into()]);
        args.extend(words.iter().map(OsString::from));
        let mut tracer = run::heaptrace(&args)?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start heaptrace")?;
        let output = tracer.stdout.take().context("no output")?;
        let mut lines = BufReader::new(output);
        let mut line = String::new();
        lines.read_line(&mut line)?;
        ensure!(line == "ready\n", "the program said {line:?}");
        Ok(Self { tracer, lines })
    }

    fn search(&self, data: &Path) -> Result<Search> {
        let before = found(data)?;
        let time = |found: &Value| found["unreachable"]["searches"][0]["at_ns"].as_u64();
        let begun = Instant::now();
        process::signal(&self.tracer, "USR2")?;
        let now = loop {
            let now = found(data)?;
            if time(&now) > time(&before) {
                break now;
            }
            if begun.elapsed() > PATIENCE {
                bail!("no search in {PATIENCE:?}");
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let search = &now["unreachable"]["searches"][0];
        if let Some(refused) = search["refused"].as_str() {
            bail!("its memory was not searched: {refused}");
        }
        let number = |name: &str| {
            let number = search[name].as_f64();
            number.with_context(|| format!("a search without {name}"))
        };
        let sites = now["unreachable"]["sites"].as_array();
        let blocks = sites.into_iter().flatten().map(|it| it["blocks"].as_u64());
        Ok(Search {
            stopped_ms: number("stopped_ns")? / 1e6,
            memory: number("memory_bytes")?,
            read: number("read_while_stopped_bytes")?,
            later: number("later_readings")?,
            unreachable: blocks.map(Option::unwrap_or_default).sum(),
            seconds: begun.elapsed().as_secs_f64(),
        })
    }

    /// Ends the program, and returns the longest pause that it noticed.
    fn end(mut self) -> Result<f64> {
        let mut input = self.tracer.stdin.take().context("no input")?;
        input.write_all(b"\n")?;
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest)?;
        self.tracer.wait().context("cannot wait for heaptrace")?;
        let pause = rest.trim().strip_prefix("longest_pause_ms ");
        let pause = pause.with_context(|| format!("the program said {rest:?}"))?;
        Ok(pause.parse()?)
    }
}

fn found(data: &Path) -> Result<Value> {
    let mut command = Command::new(workspace::heaptrace_binary());
    command.args(["leaks", "--format", "json"]).arg(data);
    serde_json::from_str(&process::output(&mut command)?).context("leaks are not JSON")
}

fn of(row: &Row, figure: impl Fn(&Search) -> f64) -> Option<Spread> {
    Spread::of(&row.searches.iter().map(figure).collect::<Vec<_>>())
}

fn gib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 30)
}

fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

fn write_row(text: &mut String, size: u64, program: &str, stop: &str, row: &Row) -> Result<()> {
    let later = match row.searches.iter().any(|it| it.later > 0.0) {
        true => cell(of(row, |it| it.later), 0),
        false => "-".to_owned(),
    };
    writeln!(
        text,
        "| {size} | {program} | {stop} | {} | {} | {:.1} | {} | {later} | {} | {:.0} |",
        cell(of(row, |it| it.stopped_ms), 1),
        cell(of(row, |it| it.stopped_ms / gib(it.memory)), 1),
        row.longest_pause_ms,
        cell(of(row, |it| mib(it.read)), 1),
        cell(of(row, |it| it.seconds), 2),
        mib(row.tracing.agent_peak_bytes as f64)
    )?;
    Ok(())
}

/// The memory that the machine has left, in MiB.
fn free_mebibytes() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|it| it.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kib.context("no MemAvailable")? >> 10)
}
