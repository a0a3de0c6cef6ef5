//! `cargo xtask placements`: measures what probes cost at heaptrace's probe locations and at function
//! entries, and writes docs/placement.md.
//!
//! It must not know how locations are found. It asks the release build for them, and measures with plain
//! kernel probes.

mod library;
mod table;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::bench::machine::Machine;
use crate::bench::stats::Spread;
use crate::{process, run, workspace};
use library::Library;
use table::Row;

/// The page of results, below the repository's root.
const PAGE: &str = "docs/placement.md";

/// Measure the cost of probes at their locations.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The number of rounds in which each location is measured.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The length of one measurement in seconds.
    #[arg(long, default_value_t = 0.1)]
    seconds: f64,
    /// Allocators to preload, instead of the C library and Debian's allocators.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print the results and write no file.
    #[arg(long)]
    dry_run: bool,
}

/// Runs the task.
pub fn run(args: &Args) -> Result<ExitCode> {
    run::build_release(None)?;
    let machine = Machine::look()?;
    let libraries = if args.files.is_empty() {
        library::known()?
    } else {
        library::preloaded(&args.files)?
    };
    let (mut rows, mut skipped) = (Vec::new(), Vec::new());
    for library in &libraries {
        println!("{}: {}", library.name, library.path.display());
        let measured = measure(library, args, &mut skipped);
        rows.extend(measured.with_context(|| format!("measuring {}", library.name))?);
    }
    let page = table::page(&machine, args.rounds, args.seconds, &rows, &skipped);
    println!("\n{page}");
    if args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    let path = workspace::root().join(PAGE);
    fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    println!("Written to {}", path.display());
    Ok(ExitCode::SUCCESS)
}

/// A probe location, as heaptrace prints it.
struct ProbeLocation {
    functions: String,
    entry: u64,
    offset: u64,
    instruction: String,
}

/// Measures the functions of a library. Adds those that the measuring program can't call to `skipped`.
fn measure(library: &Library, args: &Args, skipped: &mut Vec<String>) -> Result<Vec<Row>> {
    let printed = process::output(&mut run::heaptrace(&[
        "placements".into(),
        library.path.clone().into(),
    ])?)?;
    let mut rows = Vec::new();
    for location in locations(&printed)? {
        let mut function = None;
        for name in location.functions.split('/') {
            if can_call(library, name)? {
                function = Some(name);
                break;
            }
        }
        let Some(function) = function else {
            let names = location.functions.replace('/', ", ");
            skipped.push(format!("{names} of {}", library.name));
            continue;
        };
        let at = |offset: u64| Some((library.path.as_path(), offset));
        let ways = [
            None,
            at(location.entry),
            at(location.entry + location.offset),
        ];
        let mut times: [Vec<f64>; 3] = Default::default();
        let mut stepped = [false; 3];
        for _ in 0..args.rounds {
            for ((way, times), stepped) in ways.iter().zip(&mut times).zip(&mut stepped) {
                let (time, is_stepped) = once(library, function, args.seconds, *way)?;
                times.push(time);
                *stepped = is_stepped;
            }
        }
        let [Some(untraced), Some(entry), Some(placed)] =
            [0, 1, 2].map(|way: usize| times.get(way).and_then(|times| Spread::of(times)))
        else {
            bail!("nothing was measured");
        };
        println!(
            "    {}+{} ({}): {:.0} ns, at the entry {:.0} ns",
            location.functions, location.offset, location.instruction, placed.median, entry.median
        );
        rows.push(Row {
            allocator: library.name.clone(),
            functions: location.functions,
            offset: location.offset,
            instruction: location.instruction,
            untraced,
            entry: (entry, stepped[1]),
            placed: (placed, stepped[2]),
        });
    }
    Ok(rows)
}

/// Whether the measuring program has a call of a function.
fn can_call(library: &Library, function: &str) -> Result<bool> {
    let mut command = program(library)?;
    command.arg(function);
    Ok(process::output(&mut command)?.trim() == "can call")
}

/// The measuring program, with the library preloaded if it is not linked.
fn program(library: &Library) -> Result<Command> {
    let preload: Vec<(&str, OsString)> = match &library.preload {
        true => vec![("LD_PRELOAD", library.path.clone().into())],
        false => Vec::new(),
    };
    process::as_root(&library.program, &preload)
}

/// The nanoseconds per operation, and whether the kernel executed the probed instruction out of line.
fn once(
    library: &Library,
    function: &str,
    seconds: f64,
    probe: Option<(&Path, u64)>,
) -> Result<(f64, bool)> {
    let mut command = program(library)?;
    command.arg(function).arg(seconds.to_string());
    if let Some((path, offset)) = probe {
        command.arg(path).arg(offset.to_string());
    }
    read(&process::output(&mut command)?, probe.is_some())
}

fn read(printed: &str, is_probed: bool) -> Result<(f64, bool)> {
    let number = |name: &str| -> Result<f64> {
        printed
            .lines()
            .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
            .with_context(|| format!("the program printed no {name}: {printed}"))
    };
    let (hits, operations) = (number("hits ")?, number("operations ")?);
    // A location that misses calls is wrong.
    if is_probed && (hits - operations).abs() > 0.5 {
        bail!("the probe was hit {hits} times in {operations} operations");
    }
    Ok((number("ns_per_operation ")?, number("stepped ")? > 0.0))
}

fn locations(printed: &str) -> Result<Vec<ProbeLocation>> {
    let location = |line: &str| -> Option<ProbeLocation> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [_, functions, entry, offset, instruction, ..] = fields[..] else {
            return None;
        };
        Some(ProbeLocation {
            functions: functions.to_owned(),
            entry: u64::from_str_radix(entry.strip_prefix("0x")?, 16).ok()?,
            offset: offset.parse().ok()?,
            instruction: instruction.to_owned(),
        })
    };
    printed
        .lines()
        .skip(1)
        .map(|line| location(line).with_context(|| format!("cannot read heaptrace's line: {line}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a function's line is read, and that an incomplete line is an error.
    #[test]
    fn lines_are_read() {
        let head = "file\tfunctions\tentry\toffset\tinstruction\tstepped\twhy\n";
        let line = "/lib/x\tmemalign/aligned_alloc\t0x1f0\t7\tje\tfalse\tconditional jump\n";
        let found = locations(&format!("{head}{line}")).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].entry, found[0].offset), (0x1f0, 7));
        assert_eq!(found[0].functions, "memalign/aligned_alloc");
        assert!(locations(&format!("{head}/lib/x\tmalloc\n")).is_err());
    }

    /// Check that a location that misses calls is an error, and that a run without a probe needs no hits.
    #[test]
    fn missed_calls_are_an_error() {
        let printed =
            |hits: u32| format!("ns_per_operation 9.5\noperations 200\nhits {hits}\nstepped 1\n");
        assert_eq!(read(&printed(200), true).unwrap(), (9.5, true));
        assert_eq!(read(&printed(0), false).unwrap(), (9.5, true));
        assert!(read(&printed(100), true).is_err());
        assert!(read("operations 9\n", false).is_err());
    }
}
