//! Compares heaptrace with other heap tracers, on the same programs in the same run.
//!
//! Part of bench. Each tracer does only the work that finding a leak needs: it records the stack of each live
//! block.

use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::cell::cell;
use super::effort::Effort;
use super::figure::Figure;
use super::measured::{Measured, Runs};
use super::mode::{EXACT, SAMPLED, UNTRACED, measure_once};
use super::section::Section;
use super::stats::Spread;
use crate::{apt, process, run, workspace};

/// The Debian packages of the other tracers.
const PACKAGES: [&str; 4] = ["bpftrace", "heaptrack", "valgrind", "python3"];

/// The script of bpftrace. It records the allocations for which the condition is true.
const SCRIPT: &str = "
uprobe:LIBC:malloc /pid == cpid CONDITION/ { @size[tid] = arg0; }
uretprobe:LIBC:malloc /@size[tid]/ { @live[retval] = @size[tid]; @stack[retval] = ustack; delete(@size[tid]); }
uprobe:LIBC:free /@live[arg0]/ { delete(@live[arg0]); delete(@stack[arg0]); }
END { clear(@size); clear(@live); clear(@stack); }
";

/// A tracer to measure.
struct Tracer {
    name: &'static str,
    /// The index of the heaptrace mode that does the same work.
    peer: Option<usize>,
    run: fn(&[OsString], &Files) -> Result<Measured>,
}

/// The files of a measurement.
pub(super) struct Files {
    pub(super) folder: PathBuf,
    libc: String,
}

impl Files {
    pub(super) fn prepare() -> Result<Self> {
        let folder = workspace::target_dir().join("xtask/beside");
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self {
            folder,
            libc: libc()?,
        })
    }
}

/// The first three are the base of the comparison.
const TRACERS: [Tracer; 8] = [
    Tracer {
        name: "untraced",
        peer: None,
        run: |command, _| measure_once(&UNTRACED, command, &[]),
    },
    Tracer {
        name: "heaptrace, sampled",
        peer: None,
        run: |command, _| measure_once(&SAMPLED, command, &[]),
    },
    Tracer {
        name: "heaptrace, exact",
        peer: None,
        run: |command, _| measure_once(&EXACT, command, &[]),
    },
    Tracer {
        name: "bpftrace, one in 8192",
        peer: Some(1),
        run: |command, files| bpftrace(command, files, "&& rand % 8192 == 0"),
    },
    Tracer {
        name: "bpftrace, exact",
        peer: Some(2),
        run: |command, files| bpftrace(command, files, ""),
    },
    Tracer {
        name: "heaptrack",
        peer: Some(2),
        run: |command, files| {
            let data = files.folder.join("heaptrack");
            under(&["heaptrack".into(), "-o".into(), data.into()], command)
        },
    },
    Tracer {
        name: "valgrind, massif",
        peer: Some(2),
        run: |command, files| valgrind("--tool=massif", "--massif-out-file=", command, files),
    },
    Tracer {
        name: "valgrind, dhat",
        peer: Some(2),
        run: |command, files| valgrind("--tool=dhat", "--dhat-out-file=", command, files),
    },
];

/// Runs a command, of which each argument is one word, under bpftrace.
pub(super) fn bpftrace(command: &[OsString], files: &Files, condition: &str) -> Result<Measured> {
    let script = files.folder.join("pair.bt");
    let text = SCRIPT
        .replace("LIBC", &files.libc)
        .replace("CONDITION", condition);
    fs::write(&script, text).with_context(|| format!("cannot write {}", script.display()))?;
    let line: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let variables = [("BPFTRACE_MAP_KEYS_MAX", OsString::from("1000000"))];
    let mut bpftrace = process::as_root("bpftrace", &variables)?;
    bpftrace.arg("-q").arg(script).arg("-c").arg(line.join(" "));
    printed(&mut bpftrace)
}

fn valgrind(tool: &str, out: &str, command: &[OsString], files: &Files) -> Result<Measured> {
    let mut file = OsString::from(out);
    file.push(files.folder.join("valgrind.out"));
    under(
        &["valgrind".into(), "-q".into(), tool.into(), file],
        command,
    )
}

/// Runs a command under a tracer that follows only the program that it starts.
fn under(tracer: &[OsString], command: &[OsString]) -> Result<Measured> {
    printed_by(&in_front(tracer, command))
}

/// A command with a tracer in front of its program. Variables are set in front of both.
pub(super) fn in_front(tracer: &[OsString], command: &[OsString]) -> Vec<OsString> {
    let setting = |word: &&OsString| {
        *word == "/usr/bin/env" || *word == "env" || word.to_string_lossy().contains('=')
    };
    let split = command.iter().take_while(setting).count();
    let (variables, program) = command.split_at_checked(split).unwrap_or_default();
    [variables, tracer, program].concat()
}

/// Runs a command, and reads the figures of the program in it.
pub(super) fn printed_by(words: &[OsString]) -> Result<Measured> {
    let (first, rest) = words.split_first().context("an empty command")?;
    printed(Command::new(first).args(rest))
}

/// Reads the traced program's output from the tracer's output.
fn printed(command: &mut Command) -> Result<Measured> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run `{}`", process::describe(command)))?;
    // The output of other tracers can hold any bytes; only the figure in it matters.
    Measured::read(&String::from_utf8_lossy(&output.stdout), None)
}

/// A program that every tracer traces.
struct Work {
    name: &'static str,
    operation: &'static str,
    command: fn(seconds: f64) -> Result<Vec<OsString>>,
}

const WORK: [Work; 2] = [
    Work {
        name: "beside: a pair 8 calls deep",
        operation: "one `malloc(64)` and its `free`, eight calls deep, in code without frame pointers",
        command: |seconds| {
            let program = run::compile_c("xtask/bench/depth.c", &["-O2", "-fomit-frame-pointer"])?;
            Ok(vec![
                program.into(),
                seconds.to_string().into(),
                "1".into(),
                "8".into(),
            ])
        },
    },
    Work {
        name: "beside: CPython",
        operation: "one JSON round trip of 200 objects in CPython, with `PYTHONMALLOC=malloc`",
        command: |seconds| {
            // Each argument must be one word, because bpftrace takes a command as a line.
            let script = workspace::root().join("xtask/bench/round_trip.py");
            let mut command: Vec<OsString> =
                ["/usr/bin/env", "PYTHONMALLOC=malloc", "/usr/bin/python3"]
                    .map(OsString::from)
                    .into();
            command.extend([script.into(), seconds.to_string().into()]);
            Ok(command)
        },
    },
];

/// Measures the programs that the filter selects.
pub(super) fn measure_all(effort: &Effort) -> Result<Section> {
    let wanted: Vec<&Work> = WORK.iter().filter(|it| effort.wants(it.name)).collect();
    if wanted.is_empty() {
        return Ok(Section::default());
    }
    apt::ensure(&PACKAGES, "for the tracers to compare with")?;
    let files = Files::prepare()?;
    let mut rows = Vec::new();
    for work in wanted {
        let command = (work.command)(effort.seconds)?;
        let mut all: Vec<Option<Runs>> = vec![Some(Runs::default()); TRACERS.len()];
        for round in 1..=effort.rounds {
            for (tracer, runs) in TRACERS.iter().zip(&mut all) {
                let Some(so_far) = runs else { continue };
                match (tracer.run)(&command, &files) {
                    Ok(measured) => {
                        println!(
                            "    {}, round {round} of {}, {}: {:.1} ns",
                            work.name, effort.rounds, tracer.name, measured.nanoseconds
                        );
                        so_far.0.push(measured);
                    }
                    // heaptrace must work. A failure of another tracer is stated on the page.
                    Err(error) if tracer.peer.is_none() => return Err(error),
                    Err(error) => {
                        println!("    {}, {}: {error:#}", work.name, tracer.name);
                        *runs = None;
                    }
                }
            }
        }
        rows.push((work, all));
    }
    let figures = rows.iter().flat_map(|(work, all)| {
        TRACERS.iter().zip(all).filter_map(|(tracer, runs)| {
            let ours = all.get(tracer.peer?)?.as_ref()?;
            Some(Figure {
                name: format!("{}: ours to {}", work.name, tracer.name),
                ratio: ours.ratio_to(runs.as_ref()?)?,
            })
        })
    });
    Ok(Section {
        text: text(&rows)?,
        figures: figures.collect(),
    })
}

/// The C library that programs on this machine use.
fn libc() -> Result<String> {
    let maps = fs::read_to_string("/proc/self/maps").context("cannot read /proc/self/maps")?;
    let path = maps
        .split_whitespace()
        .find(|word| word.ends_with("/libc.so.6"));
    Ok(path.context("this program has no libc.so.6")?.to_owned())
}

fn text(rows: &[(&Work, Vec<Option<Runs>>)]) -> Result<String> {
    let mut page = String::new();
    for (work, all) in rows {
        writeln!(page, "\n## {}\n", work.name)?;
        writeln!(
            page,
            "An operation is {}. The last column compares each tracer with heaptrace in the same mode: the number is how many times cheaper heaptrace is. \
             bpftrace uses three probes and three maps, which hold the size and the stack of each block. It can't walk code \
             without frame pointers, so its stacks are short and cheap.\n",
            work.operation
        )?;
        writeln!(
            page,
            "| tracer | ns per operation | ratio | ratio to heaptrace |"
        )?;
        writeln!(page, "|--|--:|--:|--:|")?;
        let untraced = all.first().and_then(Option::as_ref);
        for (tracer, runs) in TRACERS.iter().zip(all) {
            let Some(runs) = runs else {
                writeln!(page, "| {} | does not run here | | |", tracer.name)?;
                continue;
            };
            let ours = tracer.peer.and_then(|it| all.get(it)?.as_ref());
            writeln!(
                page,
                "| {} | {} | {} | {} |",
                tracer.name,
                cell(Spread::of(&runs.nanoseconds()), 1),
                cell(untraced.and_then(|it| runs.ratio_to(it)), 2),
                cell(ours.and_then(|it| runs.ratio_to(it)), 2)
            )?;
        }
    }
    Ok(page)
}
