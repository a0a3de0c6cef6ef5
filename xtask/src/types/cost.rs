//! Measures what finding the types of many calls costs, in time and memory.
//!
//! Part of types. It must not know how a type is found.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use heaptrace_tests::types::variants;
use object::{Object as _, ObjectSymbol as _};

use super::calls;
use crate::bench::machine::Machine;
use crate::bench::measured::Measured;
use crate::bench::stats::Spread;
use crate::{apt, process, run, workspace};

/// How many calls are asked about.
const CALLS: usize = 1000;

/// Bytes of `.debug_info` that the generated program has at least.
const BYTES: u64 = 41_000_000;

/// How often each file is measured.
const ROUNDS: usize = 7;

/// A file that is measured.
struct Subject {
    name: &'static str,
    path: PathBuf,
}

/// Measures; returns the section's text.
pub(super) fn measure() -> Result<String> {
    apt::ensure(&["binutils", "g++"], "for a program to measure")?;
    let folder = workspace::target_dir().join("xtask/types-cost");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let timed = run::compile_c("xtask/bench/timed.c", &["-O2"])?;
    let subjects = [
        Subject {
            name: "a generated program in C++, `g++ -O2 -g`",
            path: generated(&folder)?,
        },
        Subject {
            name: "heaptrace's release build, `line-tables-only`",
            path: workspace::heaptrace_binary(),
        },
    ];
    let mut text = format!(
        "{}\n\n{CALLS} calls of allocators, spread over all that the file has, are asked about at once. The times are those of the whole program from its start to \
         its end, with the reader's: the median of {ROUNDS} runs, and the shortest and the longest. Processor time changes less if the machine is busy. Memory is the \
         most that one process had resident, pages of the file included.\n\n\
         | File | `.debug_info`, MB | Calls | with a type | time, ms | processor time, ms | memory, MB |\n|--|--:|--:|--:|--:|--:|--:|\n",
        machine()?
    );
    for subject in &subjects {
        write_row(&mut text, subject, &timed, &folder)?;
    }
    Ok(text)
}

fn machine() -> Result<String> {
    let machine = Machine::look()?;
    Ok(format!(
        "Measured on {}, {} processors, Linux {}, {}.",
        machine.cpu, machine.cpus, machine.kernel, machine.date
    ))
}

fn write_row(text: &mut String, subject: &Subject, timed: &Path, folder: &Path) -> Result<()> {
    let asked = folder.join("asked");
    let offsets = calls::of(&subject.path, CALLS)?;
    let lines: String = offsets.iter().map(|it| format!("{it:#x}\n")).collect();
    fs::write(&asked, lines)?;
    let words = ["names", "--types"];
    let mut command = Command::new(workspace::heaptrace_binary());
    let found = process::output_with(command.args(words).arg(&subject.path), File::open(&asked)?)?;
    let answers = found.lines().count();
    if answers != CALLS {
        bail!("{answers} answers for {CALLS} calls");
    }
    let typed = found.lines().filter(|it| !it.starts_with("??")).count();
    let (mut times, mut busy, mut peaks) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let mut command = Command::new(timed);
        command.arg(workspace::heaptrace_binary()).args(words);
        let printed = process::output_with(command.arg(&subject.path), File::open(&asked)?)?;
        let measured = Measured::read(&printed, None)?;
        times.push(measured.nanoseconds / 1e6);
        busy.extend(measured.cpu_ns.map(|it| it / 1e6));
        peaks.extend(measured.peak_bytes.map(|it| it / 1e6));
    }
    let shown = |values: &[f64]| {
        let spread = Spread::of(values).context("no times")?;
        let Spread { median, min, max } = spread;
        Ok::<_, anyhow::Error>(format!("{median:.0} ({min:.0}–{max:.0})"))
    };
    let peak = Spread::of(&peaks).context("no memory")?;
    let _ = writeln!(
        text,
        "| {} | {:.1} | {CALLS} | {typed} | {} | {} | {:.0} |",
        subject.name,
        calls::section_bytes(&subject.path, ".debug_info")? as f64 / 1e6,
        shown(&times)?,
        shown(&busy)?,
        peak.max
    );
    Ok(())
}

/// A program of many containers and elements, with as much debug information as is wanted: one unit, with copies whose functions have names of their
/// own, so that all of them are linked.
fn generated(folder: &Path) -> Result<PathBuf> {
    let source = folder.join("unit.cc");
    let of_unit = variants::cpp().replace("int main(", "extern \"C\" int unit(");
    fs::write(&source, of_unit)?;
    let first = folder.join("unit.o");
    let mut command = Command::new("g++");
    command.args(["-std=c++17", "-O2", "-g", "-w", "-c", "-o"]);
    process::run(command.arg(&first).arg(source))?;
    let of_one = calls::section_bytes(&first, ".debug_info")?.max(1);
    let functions = functions(&first)?;
    let mut objects = Vec::new();
    let (mut declared, mut called) = (String::new(), String::new());
    for unit in 0..BYTES.div_ceil(of_one) + 1 {
        let renamed: String = functions
            .iter()
            .map(|it| format!("{it} {it}_{unit}\n"))
            .collect();
        let names = folder.join("names");
        fs::write(&names, renamed)?;
        let object = folder.join(format!("unit{unit}.o"));
        let mut copy = Command::new("objcopy");
        copy.arg(format!("--redefine-syms={}", names.display()));
        process::run(copy.arg(&first).arg(&object))?;
        objects.push(object);
        let _ = writeln!(declared, "int unit_{unit}(int, char**);");
        let _ = write!(called, " unit_{unit}(argc, argv);");
    }
    let main = folder.join("main.c");
    fs::write(
        &main,
        format!("{declared}int main(int argc, char** argv) {{{called} return 0; }}\n"),
    )?;
    let main_object = main.with_extension("o");
    let mut command = Command::new("gcc");
    process::run(command.args(["-c", "-o"]).arg(&main_object).arg(main))?;
    let program = folder.join("program");
    let mut link = Command::new("g++");
    process::run(link.arg("-o").arg(&program).arg(main_object).args(objects))?;
    Ok(program)
}

/// The names of the functions of a unit that no other unit may have.
fn functions(object: &Path) -> Result<Vec<String>> {
    let bytes = fs::read(object).with_context(|| format!("cannot read {}", object.display()))?;
    let file = object::File::parse(&*bytes).with_context(|| object.display().to_string())?;
    let names = file.symbols().filter_map(|it| it.name().ok());
    let own = names.filter(|it| it.starts_with("case_") || *it == "unit");
    Ok(own.map(str::to_owned).collect())
}
