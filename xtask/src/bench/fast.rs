//! Measures what `--fast` costs: a pair of calls, and whole programs that run for some seconds.
//!
//! Part of bench. A process is moved to the fast path after it was seen to be busy, so programs that end within a second say
//! little about it.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::cell::{cell, middle};
use super::effort::Effort;
use super::figure::Figure;
use super::measured::Runs;
use super::mode::{EXACT, EXACT_FAST, FAST, Mode, SAMPLED, UNTRACED, measure, measure_by};
use super::programs::{
    self, PACKAGES, counted_words, cplusplus, redis, round_trips, starts_server, words,
};
use super::section::Section;
use super::serving::Serving;
use super::stats::Spread;
use super::workload::WORKLOADS;
use crate::{apt, process, run, workspace};

/// Seconds of a measurement of pairs.
pub(super) const SECONDS: f64 = 4.0;

/// The modes of pairs. Programs are not sampled without `--fast`: some would take minutes.
const PAIRS: [Mode; 5] = [UNTRACED, SAMPLED, EXACT, EXACT_FAST, FAST];
const PROGRAMS: [Mode; 2] = [UNTRACED, FAST];

/// A server and its benchmark, if both are traced.
const WITH_CLIENT: &str = "redis and its benchmark";

/// A program that runs for some seconds, as a command in a folder of its own.
struct Program {
    name: &'static str,
    command: fn(&Path) -> Result<Vec<OsString>>,
}

const COMMANDS: [Program; 6] = [
    Program {
        name: "CPython",
        command: |folder| round_trips(folder, 4000),
    },
    Program {
        name: "Rust",
        command: |folder| counted_words(folder, 2000),
    },
    Program {
        name: "C++",
        command: |folder| {
            let program = folder.join("maps");
            let source = workspace::root().join("xtask/bench/maps.cc");
            let mut command = Command::new("g++");
            process::run(command.args(["-O2", "-o"]).arg(&program).arg(source))?;
            Ok(vec![program.into(), "2000".into()])
        },
    },
    Program {
        name: "sqlite3",
        command: |_| {
            let sql = "create table t(a, b); insert into t with recursive n(i) as \
                       (select 1 union all select i+1 from n where i < 5000000) select i, 'row ' || (i % 100) from n; \
                       create index x on t(b); select b, sum(a) from t group by b;";
            Ok(words(&["sqlite3", ":memory:", sql], &[]))
        },
    },
    Program {
        name: "redis",
        command: |folder| redis(folder, 200_000),
    },
    Program {
        name: "cc1plus",
        command: |folder| cplusplus(folder, 60),
    },
];

/// The programs that the filter selects, each with its command.
pub(super) fn commands(
    effort: &Effort,
    folder: &Path,
) -> Result<Vec<(&'static str, Vec<OsString>)>> {
    let wanted: Vec<&Program> = COMMANDS.iter().filter(|it| effort.wants(it.name)).collect();
    if !wanted.is_empty() {
        apt::ensure(&PACKAGES, "for the programs to measure")?;
    }
    let commands = wanted.into_iter();
    commands
        .map(|program| Ok((program.name, (program.command)(folder)?)))
        .collect()
}

/// A time of a pair or of a program, for a table.
pub(super) fn time(nanoseconds: f64) -> String {
    if nanoseconds < 1e6 {
        format!("{nanoseconds:.1} ns")
    } else {
        format!("{:.2} s", nanoseconds / 1e9)
    }
}

/// Measures the pairs and programs that the filter selects.
pub(super) fn measure_all(effort: &Effort) -> Result<Section> {
    let mut section = Section::default();
    let mut rows = Vec::new();
    for workload in WORKLOADS
        .iter()
        .filter(|it| it.depth.is_none() && it.name.contains("pair"))
    {
        if effort.wants(workload.name) {
            let command = workload.command(SECONDS, 1)?;
            let runs = measure(workload.name, &command, &PAIRS, effort.rounds)?;
            rows.push((workload.name, &PAIRS[..], runs));
        }
    }
    let timed = run::compile_c("xtask/bench/timed.c", &["-O2"])?;
    let folder = programs::folder()?;
    for (name, program) in commands(effort, &folder)? {
        let mut whole = name;
        if starts_server(&program) {
            let serving = Serving {
                script: &program,
                folder: &folder,
                timed: &timed,
            };
            let once = |mode: &Mode| serving.in_mode(mode);
            let runs = measure_by(name, &PROGRAMS, effort.rounds, once)?;
            rows.push((name, &PROGRAMS[..], runs));
            whole = WITH_CLIENT;
        }
        let command = [vec![OsString::from(&timed)], program].concat();
        let runs = measure(whole, &command, &PROGRAMS, effort.rounds)?;
        rows.push((whole, &PROGRAMS[..], runs));
    }
    if rows.is_empty() {
        return Ok(section);
    }
    section.text = text(&rows)?;
    for (name, _, runs) in &rows {
        let [untraced, .., fast] = runs.as_slice() else {
            continue;
        };
        section
            .figures
            .extend(fast.ratio_to(untraced).map(|ratio| Figure {
                name: format!("{name}, --fast"),
                ratio,
            }));
        if let [_, _, exact, exact_fast, _] = runs.as_slice() {
            section
                .figures
                .extend(exact_fast.ratio_to(exact).map(|ratio| Figure {
                    name: format!("{name}, --fast --exact to --exact"),
                    ratio,
                }));
        }
    }
    Ok(section)
}

fn text(rows: &[(&str, &[Mode], Vec<Runs>)]) -> Result<String> {
    let mut page = String::new();
    writeln!(page, "\n## The fast path\n")?;
    writeln!(
        page,
        "Each time is that of a whole program, or of a pair of calls, with the time before the process was moved. In the rows \
         `redis`, the server alone is traced: its time is that of the requests, its processor time what the server says of itself.\n"
    )?;
    writeln!(
        page,
        "| program | mode | time | ratio | processor time, ratio | events | events lost |"
    )?;
    writeln!(page, "|--|--|--:|--:|--:|--:|--:|")?;
    for (name, modes, runs) in rows {
        let Some(untraced) = runs.first() else {
            continue;
        };
        for (mode, runs) in modes.iter().zip(runs) {
            let time = time(Spread::of(&runs.nanoseconds()).map_or(0.0, |it| it.median));
            writeln!(
                page,
                "| {name} | {} | {time} | {} | {} | {} | {} |",
                mode.name,
                cell(runs.ratio_to(untraced), 2),
                cell(Spread::of_ratios(&runs.cpu(), &untraced.cpu()), 2),
                middle(&runs.tracing(|it| it.events), 1.0, 0),
                runs.lost(),
            )?;
        }
    }
    Ok(page)
}
