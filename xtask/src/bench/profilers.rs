//! Compares `--fast` with other heap profilers, on the pair of calls and on whole programs.
//!
//! Part of bench. An allocator that profiles itself is compared with the same allocator without its profiler.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::beside::{self, Files};
use super::cell::cell;
use super::effort::Effort;
use super::fast;
use super::jemalloc;
use super::machine::Machine;
use super::measured::{Measured, Runs};
use super::mode::{
    FAST, FAST_BY_LOAD, Mode, SAMPLED, UNTRACED, alone, data_file_path, measure_once,
};
use super::programs::{self, LATENCIES, p99, starts_server};
use super::section::Section;
use super::serving::Serving;
use super::stats::Spread;
use super::workload::WORKLOADS;
use crate::{apt, run};

/// The Debian packages of the other profilers.
const PACKAGES: [&str; 3] = ["bpftrace", "heaptrack", "libgoogle-perftools4"];

/// The columns that only a server has: its latencies, and its processor time.
const SERVER_COLUMNS: usize = LATENCIES.len() + 1;

/// A way to profile a program, or the base of such a way.
pub(super) struct Profiler {
    pub(super) name: &'static str,
    /// The index of what it is compared with.
    pub(super) base: usize,
    how: How,
    /// Whether each call traps. Then it is measured only with programs that it does not slow down for minutes.
    traps: bool,
}

#[derive(Clone, Copy)]
enum How {
    Heaptrace(Mode),
    Heaptrack,
    Bpftrace,
    /// The program with the library that profiles, and these variables.
    Jemalloc(&'static str),
    Tcmalloc(&'static str),
}

pub(super) const PROFILERS: [Profiler; 10] = [
    Profiler {
        name: "untraced",
        base: 0,
        how: How::Heaptrace(UNTRACED),
        traps: false,
    },
    Profiler {
        name: "heaptrace, sampled",
        base: 0,
        how: How::Heaptrace(SAMPLED),
        traps: true,
    },
    Profiler {
        name: "heaptrace --fast",
        base: 0,
        how: How::Heaptrace(FAST_BY_LOAD),
        traps: false,
    },
    Profiler {
        name: "heaptrace --fast --sample 512KiB",
        base: 0,
        how: How::Heaptrace(FAST),
        traps: false,
    },
    Profiler {
        name: "heaptrack",
        base: 0,
        how: How::Heaptrack,
        traps: false,
    },
    Profiler {
        name: "bpftrace, one in 8192",
        base: 0,
        how: How::Bpftrace,
        traps: true,
    },
    Profiler {
        name: "jemalloc",
        base: 6,
        how: How::Jemalloc("MALLOC_CONF=prof:false"),
        traps: false,
    },
    Profiler {
        name: "jemalloc's profiler",
        base: 6,
        how: How::Jemalloc("MALLOC_CONF=prof:true,prof_active:true,lg_prof_sample:19"),
        traps: false,
    },
    Profiler {
        name: "tcmalloc",
        base: 8,
        how: How::Tcmalloc("TCMALLOC_SAMPLE_PARAMETER=0"),
        traps: false,
    },
    Profiler {
        name: "tcmalloc's profiler",
        base: 8,
        how: How::Tcmalloc("TCMALLOC_SAMPLE_PARAMETER=524288"),
        traps: false,
    },
];

/// A program to profile.
pub(super) struct Work {
    pub(super) name: &'static str,
    /// The program that measures the time of another one, if this one does not measure its own.
    pub(super) timed: Option<PathBuf>,
    pub(super) command: Vec<OsString>,
    /// Whether it is measured also where each call traps.
    is_short: bool,
}

impl Work {
    /// The command with another one in front of the program.
    pub(super) fn under(&self, tracer: &[OsString]) -> Vec<OsString> {
        let timed = self.timed.iter().map(OsString::from);
        beside::in_front(
            &timed.chain(tracer.iter().cloned()).collect::<Vec<_>>(),
            &self.command,
        )
    }

    /// The same as a server, which alone is traced.
    fn serving<'a>(&'a self, folder: &'a Path) -> Option<Serving<'a>> {
        let serving = Serving {
            script: &self.command,
            folder,
            timed: self.timed.as_deref()?,
        };
        starts_server(&self.command).then_some(serving)
    }
}

/// One row of a table.
struct Row {
    profiler: usize,
    /// `None` if it does not run here.
    runs: Option<Runs>,
    /// The server's latencies of each round, in milliseconds: a list for each kind of request.
    latencies: Vec<Vec<f64>>,
}

/// What all measurements use.
pub(super) struct Tools {
    files: Files,
    jemalloc: PathBuf,
}

impl Tools {
    pub(super) fn prepare() -> Result<Self> {
        apt::ensure(&PACKAGES, "for the profilers to compare with")?;
        Ok(Self {
            files: Files::prepare()?,
            jemalloc: jemalloc::library()?,
        })
    }
}

impl Profiler {
    /// Whether it records a sample, or is the base of one that does, and slows no program down for minutes.
    pub(super) fn samples(&self) -> bool {
        !self.traps && !matches!(self.how, How::Heaptrack)
    }

    /// Whether heaptrace records the run.
    pub(super) fn is_heaptrace(&self) -> bool {
        matches!(self.how, How::Heaptrace(_))
    }

    /// The words in front of a program with its variables. heaptrace writes its data here.
    pub(super) fn words(&self, tools: &Tools, data: &Path) -> Result<Vec<OsString>> {
        let preloaded = |library: &Path, variable: &str| {
            let library = format!("LD_PRELOAD={}", library.display());
            vec!["env".into(), variable.into(), library.into()]
        };
        Ok(match self.how {
            How::Heaptrace(mode) => mode.tracer(data)?,
            How::Jemalloc(variable) => preloaded(&tools.jemalloc, variable),
            How::Tcmalloc(variable) => preloaded(Path::new("libtcmalloc.so.4"), variable),
            How::Heaptrack => {
                let file = tools.files.folder.join("heaptrack");
                vec!["heaptrack".into(), "-o".into(), file.into()]
            }
            How::Bpftrace => bail!("bpftrace takes the command as an argument"),
        })
    }

    fn run(&self, work: &Work, tools: &Tools, folder: &Path) -> Result<Measured> {
        let serving = work.serving(folder);
        let words = || self.words(tools, &data_file_path());
        match (self.how, &serving) {
            (How::Heaptrace(mode), Some(serving)) => serving.in_mode(&mode),
            (How::Heaptrace(mode), None) => measure_once(&mode, &work.under(&[]), &[]),
            (How::Bpftrace, _) => {
                beside::bpftrace(&work.command, &tools.files, "&& rand % 8192 == 0")
            }
            (_, Some(serving)) => serving.under(&words()?),
            (How::Heaptrack, None) => beside::printed_by(&work.under(&words()?)),
            (How::Jemalloc(_) | How::Tcmalloc(_), None) => {
                alone(&[words()?, work.under(&[])].concat())
            }
        }
    }
}

/// Measures the programs that the filter selects.
pub(super) fn measure_all(effort: &Effort) -> Result<Section> {
    let folder = programs::folder()?;
    let works = works(effort, &folder)?;
    if works.is_empty() {
        return Ok(Section::default());
    }
    let tools = Tools::prepare()?;
    let mut page = String::new();
    for work in &works {
        let mut rows: Vec<Row> = PROFILERS
            .iter()
            .enumerate()
            .filter(|(_, it)| !it.traps || work.is_short)
            .map(|(profiler, _)| Row {
                profiler,
                runs: Some(Runs::default()),
                latencies: vec![Vec::new(); LATENCIES.len()],
            })
            .collect();
        for round in 1..=effort.rounds {
            for row in &mut rows {
                measure(row, work, &tools, &folder, round, effort.rounds)?;
            }
        }
        write_table(&mut page, work, &rows)?;
    }
    Ok(Section {
        text: page,
        figures: Vec::new(),
    })
}

/// Measures a row once more.
fn measure(
    row: &mut Row,
    work: &Work,
    tools: &Tools,
    folder: &Path,
    round: u32,
    rounds: u32,
) -> Result<()> {
    let (profiler, Some(runs)) = (&PROFILERS[row.profiler], &mut row.runs) else {
        return Ok(());
    };
    match profiler.run(work, tools, folder) {
        Ok(measured) => {
            println!(
                "    {}, round {round} of {rounds}, {}: {:.1} ns",
                work.name, profiler.name, measured.nanoseconds
            );
            runs.0.push(measured);
            if starts_server(&work.command) {
                for (all, latency) in row.latencies.iter_mut().zip(p99(folder)?) {
                    all.push(latency);
                }
            }
        }
        // heaptrace must work. A failure of another one is stated on the page.
        Err(error) if profiler.is_heaptrace() => return Err(error),
        Err(error) => {
            println!("    {}, {}: {error:#}", work.name, profiler.name);
            row.runs = None;
        }
    }
    Ok(())
}

/// The pair and the programs that the filter selects.
pub(super) fn works(effort: &Effort, folder: &Path) -> Result<Vec<Work>> {
    let mut works = Vec::new();
    let pair = WORKLOADS.first().context("no workload")?;
    if effort.wants(pair.name) {
        works.push(Work {
            name: pair.name,
            timed: None,
            command: pair.command(fast::SECONDS, 1)?,
            is_short: true,
        });
    }
    let timed = run::compile_c("xtask/bench/timed.c", &["-O2"])?;
    for (name, command) in fast::commands(effort, folder)? {
        works.push(Work {
            name,
            timed: Some(timed.clone()),
            command,
            is_short: false,
        });
    }
    Ok(works)
}

/// The top of the page.
pub(super) fn head(machine: &Machine, rounds: u32) -> String {
    format!(
        "# Beside other profilers\n\n\
         Written by `cargo xtask bench --only profilers`; run it for your own machine.\n\n\
         {machine}\n\
         The pair, and programs that run for some seconds, with the time before heaptrace had moved them. They are measured \
         alternately, in {rounds} rounds. A time is the median of the rounds. A ratio is the median of the rounds' ratios, with the smallest and \
         the largest in parentheses. All that sample have \
         a mean of 512 KiB, except for heaptrace with `--fast` alone, whose rate follows the load, as by default. heaptrack records every call. jemalloc's and tcmalloc's own profilers are compared with the same \
         allocator without its profiler. heaptrace without `--fast`, and bpftrace, are measured with the pair alone: they \
         would take minutes with the programs. Of redis, the server alone is traced, or runs \
         on the preloaded allocator instead of Debian's jemalloc. Its time is that of the requests, without the starts and ends of \
         server and tracer; its processor time is what the server says of itself; its latencies are those that redis-benchmark \
         prints, of its slowest percent of requests.\n"
    )
}

fn write_table(page: &mut String, work: &Work, rows: &[Row]) -> Result<()> {
    let is_server = starts_server(&work.command);
    write!(page, "\n| {} | time | ratio | ratio to", work.name)?;
    let (names, lines) = if is_server {
        (
            LATENCIES.map(|it| format!(" p99 of {it}, ms |")).concat() + " processor time, ratio |",
            "--:|".repeat(SERVER_COLUMNS),
        )
    } else {
        Default::default()
    };
    writeln!(page, " |{names}")?;
    writeln!(page, "|--|--:|--:|--|{lines}")?;
    let runs_of = |profiler: usize| {
        let row = rows.iter().find(|row| row.profiler == profiler);
        row.and_then(|row| row.runs.as_ref())
    };
    for row in rows {
        let profiler = &PROFILERS[row.profiler];
        let Some(runs) = &row.runs else {
            let empty = "|".repeat(3 + if is_server { SERVER_COLUMNS } else { 0 });
            writeln!(page, "| {} | does not run here {empty}", profiler.name)?;
            continue;
        };
        let time = fast::time(Spread::of(&runs.nanoseconds()).map_or(0.0, |it| it.median));
        let base = runs_of(profiler.base);
        let ratio = base.and_then(|base| runs.ratio_to(base));
        write!(
            page,
            "| {} | {time} | {} | {} |",
            profiler.name,
            cell(ratio, 2),
            PROFILERS[profiler.base].name,
        )?;
        if is_server {
            for latencies in &row.latencies {
                write!(page, " {} |", cell(Spread::of(latencies), 2))?;
            }
            let ratio = base.and_then(|base| Spread::of_ratios(&runs.cpu(), &base.cpu()));
            write!(page, " {} |", cell(ratio, 2))?;
        }
        writeln!(page)?;
    }
    Ok(())
}
