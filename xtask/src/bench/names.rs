//! Compares names with those of other programs that find names for addresses: which ones, how fast, and in how much memory.
//!
//! Part of bench. It must not know how heaptrace finds a name.

mod addresses;
mod agreement;
mod counted;
mod stripped;
mod tool;

use std::fmt::Write;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::cell::{cell, middle};
use super::effort::Effort;
use super::machine::Machine;
use super::measured::Measured;
use super::section::Section;
use super::stats::Spread;
use crate::{apt, cargo, process, run, workspace};
use addresses::Address;
use agreement::Agreement;
use tool::{Answer, Tool};

/// The Debian packages of the other programs, and of the library.
const PACKAGES: [&str; 2] = ["llvm", "binutils"];

/// The names of the files to find names in.
const SUBJECTS: [&str; 2] = ["libLLVM", "debug build"];

/// A file to find names in.
struct Subject {
    name: &'static str,
    about: &'static str,
    path: PathBuf,
}

/// A tool's runs.
#[derive(Default)]
struct Row {
    seconds: Vec<f64>,
    peak_bytes: Vec<f64>,
    /// What it found, which is the same in each run.
    found: Vec<Answer>,
}

/// What all runs use.
struct Tools {
    blazecli: Option<PathBuf>,
    /// Measures another program.
    timed: PathBuf,
    /// For what is asked.
    folder: PathBuf,
}

/// Measures the files that the filter selects.
pub(super) fn measure_all(effort: &Effort) -> Result<Section> {
    apt::ensure(&PACKAGES, "for the programs to compare with")?;
    let folder = workspace::target_dir().join("xtask/names");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let is_beside = SUBJECTS.iter().any(|name| effort.wants(name));
    let programs = Tools {
        blazecli: is_beside.then(tool::blazecli).flatten(),
        timed: run::compile_c("xtask/bench/timed.c", &["-O2"])?,
        folder,
    };
    let mut text = String::new();
    let subjects = match is_beside {
        true => subjects()?.into(),
        false => Vec::new(),
    };
    for subject in subjects {
        if !effort.wants(subject.name) {
            continue;
        }
        let addresses = addresses::of(&subject.path)?;
        let mut tools = tool::ALL.map(|tool| (tool, Some(Row::default())));
        for round in 1..=effort.rounds {
            for (tool, row) in &mut tools {
                let Some(row) = row.as_mut() else { continue };
                match measure(tool, row, &programs, &subject.path, &addresses) {
                    Ok(seconds) => println!(
                        "    {}, round {round} of {}, {}: {seconds:.2} s",
                        subject.name, effort.rounds, tool.name
                    ),
                    // heaptrace must work. A failure of another one is stated on the page.
                    Err(error) if tool.is_ours() => return Err(error),
                    Err(error) => println!("    {}: {error:#}", tool.name),
                }
            }
            // What failed once is not tried again.
            for (_, row) in &mut tools {
                if row.as_ref().is_some_and(|it| it.seconds.is_empty()) {
                    *row = None;
                }
            }
        }
        write_table(&mut text, &subject, &addresses, &tools)?;
    }
    if effort.wants("stripped") {
        text.push_str(&stripped::measure_all()?);
    }
    Ok(Section {
        text,
        figures: Vec::new(),
    })
}

/// Runs a tool once more.
fn measure(
    tool: &Tool,
    row: &mut Row,
    tools: &Tools,
    path: &Path,
    addresses: &[Address],
) -> Result<f64> {
    let (words, asked) = tool.question(tools.blazecli.as_deref(), path, addresses)?;
    let question = tools.folder.join("asked");
    fs::write(&question, asked)?;
    if row.found.is_empty() {
        row.found = tool.found(&words, &question)?;
        let asked = addresses.len().div_ceil(tool.every);
        if row.found.len() != asked {
            bail!("{} answers for {asked} addresses", row.found.len());
        }
    }
    // A program of its own, because the most memory of a child is at least that of the process that started it.
    let mut command = Command::new(&tools.timed);
    let printed = process::output_with(command.args(&words), File::open(&question)?);
    let measured = Measured::read(&printed?, None)?;
    let seconds = measured.nanoseconds / 1e9;
    row.seconds.push(seconds);
    row.peak_bytes.extend(measured.peak_bytes);
    Ok(seconds)
}

/// LLVM's library, which has symbols alone, and a program with debug information.
fn subjects() -> Result<[Subject; 2]> {
    let config = process::find_program("llvm-symbolizer").context("no llvm-symbolizer")?;
    let libraries = process::output(Command::new("ldd").arg(config))?;
    let library = libraries.lines().find_map(|line| {
        let (name, path) = line.trim().split_once(" => ")?;
        name.starts_with("libLLVM")
            .then(|| path.split(" (").next())?
    });
    let library = library.context("llvm-symbolizer has no library of LLVM")?;
    let mut build = cargo::host("build");
    process::run(build.args(["--package", "heaptrace"]))?;
    Ok([
        Subject {
            name: SUBJECTS[0],
            about: "Debian's library, which has the symbols that it exports and no debug information",
            path: PathBuf::from(library),
        },
        Subject {
            name: SUBJECTS[1],
            about: "heaptrace's own, with debug information of all functions, lines and inlined calls",
            path: workspace::target_dir().join("debug/heaptrace"),
        },
    ])
}

/// The top of the page.
pub(super) fn head(machine: &Machine, rounds: u32) -> String {
    format!(
        "# Names beside other symbolizers\n\n\
         Written by `cargo xtask bench --only names`; run it for your own machine.\n\n\
         {machine}\n\
         Each program gets the same {count} distinct addresses, in the same random order, and prints the function, the source file and the line of each, with \
         inlined functions. The programs run one after the other, in {rounds} rounds. A time is that of the whole program, from its start to its end. It is the \
         median of the rounds; a ratio is the median of the rounds' ratios to heaptrace, with the smallest and the largest in parentheses. Memory is the most that \
         one process had resident, pages of the file included: for heaptrace, the largest one of the tracer and its readers without rights, of which it has two or more \
         where there are more processors.\n\n\
         Names are compared without spaces, and without the hashes of Rust's older names. *Same function*: the function that the machine code belongs to. \
         *Written differently*: the same name without what is in brackets, or without the path in front of it. Each program has its own demangler; that of \
         heaptrace (cpp_demangle) writes packs of template arguments in another way. *Another one*: for C++, thunks, which demanglers name differently; with \
         debug information, addr2line gives the name in the symbol table to the innermost function. *Not named* and *only it names* count \
         addresses for which just one of the two has a name. *Same innermost*: the function that was inlined last, without what is in brackets. llvm-symbolizer of \
         LLVM 14 does not decode Rust's older names; they are decoded before they are compared. addr2line takes many minutes for all addresses, so it is asked for a \
         part of them; heaptrace's time is that for all.\n",
        count = addresses::COUNT
    )
}

fn write_table(
    page: &mut String,
    subject: &Subject,
    addresses: &[Address],
    tools: &[(&Tool, Option<Row>)],
) -> Result<()> {
    let size = fs::metadata(&subject.path)?.len();
    writeln!(
        page,
        "\n## {}\n\n{}, {} MB; {} addresses.\n\n\
         | | time, ms | ratio | memory, MB | same function | written differently | another one | not named | only it names | same innermost | same line |\n\
         |--|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
        subject.name,
        subject.about,
        size / 1_000_000,
        addresses.len()
    )?;
    let ours = tools.iter().find(|(tool, _)| tool.is_ours());
    let ours = ours
        .and_then(|(_, row)| row.as_ref())
        .context("no own row")?;
    for (tool, row) in tools {
        let Some(row) = row else {
            writeln!(
                page,
                "| {} | does not run here{} |",
                tool.name,
                " |".repeat(9)
            )?;
            continue;
        };
        let own: Vec<Answer> = ours.found.iter().step_by(tool.every).cloned().collect();
        let agreement = Agreement::of(&own, &row.found);
        for example in &agreement.examples {
            println!("    {}: {example}", tool.name);
        }
        let part = |count: usize| format!("{:.2} %", 100.0 * count as f64 / own.len() as f64);
        let ratio = cell(Spread::of_ratios(&row.seconds, &ours.seconds), 2);
        let ratio = if tool.every > 1 {
            format!("more than {ratio}")
        } else {
            ratio
        };
        let has_lines = ours.found.iter().any(|it| it.line.is_some());
        writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            tool.name,
            middle(&row.seconds, 1e-3, 0),
            ratio,
            middle(&row.peak_bytes, 1e6, 0),
            part(agreement.same),
            part(agreement.differently),
            part(agreement.another),
            part(agreement.unnamed),
            part(agreement.only_named),
            part(agreement.innermost),
            if has_lines {
                part(agreement.lines)
            } else {
                String::new()
            },
        )?;
    }
    Ok(())
}
