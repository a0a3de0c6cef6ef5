//! Where probes go, on the running kernel: what is taken for emulated is, and a place that was chosen
//! sees every call and costs no more than the entry.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{Heaptrace, bench_program, c, require_root, run};

/// Check that the kernel emulates what probes are placed on, and, so that this means anything, that it
/// executes other instructions out of line.
#[test]
fn the_kernel_emulates_what_probes_are_placed_on() -> Result<()> {
    require_root()?;
    let printed = run(&mut c("instructions")?.command())?.success()?.stdout;
    let found: BTreeMap<&str, &str> = printed
        .lines()
        .filter_map(|line| line.split_once(' '))
        .collect();
    for name in [
        "nop", "jmp8", "jmp32", "je8", "jg32", "call32", "push_rax", "push_rbp", "push_rsp",
        "push_r15",
    ] {
        assert_eq!(found.get(name), Some(&"emulated"), "{name}:\n{printed}");
    }
    for name in ["mov", "test", "endbr64"] {
        assert_eq!(found.get(name), Some(&"stepped"), "{name}:\n{printed}");
    }
    Ok(())
}

/// A function of the C library, as heaptrace places its probe.
#[derive(Debug)]
struct Place {
    function: String,
    entry: u64,
    offset: u64,
    instruction: String,
    stepped: bool,
}

/// The C library that programs of this machine run with.
fn c_library() -> Result<PathBuf> {
    let printed = run(Command::new("cc").arg("-print-file-name=libc.so.6"))?.success()?;
    Path::new(printed.stdout.trim())
        .canonicalize()
        .context("the C library")
}

fn places(library: &Path) -> Result<Vec<Place>> {
    let heaptrace = Heaptrace::offline()?;
    let printed = heaptrace.run(&["placements".as_ref(), library.as_os_str()])?;
    let printed = printed.success()?.stdout;
    let mut places = Vec::new();
    for line in printed.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [_, functions, entry, offset, instruction, stepped, _] = fields[..] else {
            anyhow::bail!("not a line of a table: {line}");
        };
        places.push(Place {
            function: functions.split('/').next().unwrap_or_default().to_owned(),
            entry: u64::from_str_radix(entry.trim_start_matches("0x"), 16)?,
            offset: offset.parse()?,
            instruction: instruction.to_owned(),
            stepped: stepped.parse()?,
        });
    }
    ensure!(places.len() > 5, "too few functions:\n{printed}");
    Ok(places)
}

/// What the program measured of itself.
#[derive(Debug)]
struct Measured {
    nanoseconds: f64,
    operations: u64,
    hits: u64,
    stepped: bool,
}

fn measure(library: &Path, operation: &str, offset: u64) -> Result<Measured> {
    let mut command = Command::new(bench_program("place")?);
    command.args([operation, "0.05"]).arg(library);
    let printed = run(command.arg(offset.to_string()))?.success()?.stdout;
    let number = |name: &str| -> Result<f64> {
        let value = printed.lines().find_map(|line| line.strip_prefix(name));
        let value = value.with_context(|| format!("no {name}:\n{printed}"))?;
        Ok(value.trim().parse()?)
    };
    Ok(Measured {
        nanoseconds: number("ns_per_operation ")?,
        operations: number("operations ")? as u64,
        hits: number("hits ")? as u64,
        stepped: number("stepped ")? > 0.0,
    })
}

/// The least of several: what a busy machine adds is never less than nothing.
fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Check for each function of the C library that its place is hit once a call, as its entry is, is
/// executed in the way that heaptrace says, and costs no more than the entry; and that where the entry
/// takes a second trap and the place doesn't, as with most `free`s, it costs clearly less.
#[test]
fn a_place_costs_no_more_than_the_entry() -> Result<()> {
    const ROUNDS: usize = 5;
    require_root()?;
    let library = c_library()?;
    for place in places(&library)? {
        let (mut at_entry, mut as_placed) = (Vec::new(), Vec::new());
        let mut entry_is_stepped = false;
        for _ in 0..ROUNDS {
            let entry = measure(&library, &place.function, place.entry)?;
            let placed = measure(&library, &place.function, place.entry + place.offset)?;
            assert_eq!(entry.hits, entry.operations, "{place:?}");
            assert_eq!(placed.hits, placed.operations, "{place:?}");
            assert_eq!(placed.stepped, place.stepped, "{place:?}");
            entry_is_stepped = entry.stepped;
            at_entry.push(entry.nanoseconds);
            as_placed.push(placed.nanoseconds);
        }
        if place.offset == 0 {
            continue;
        }
        let ratio = least(&as_placed) / least(&at_entry);
        let most = if entry_is_stepped && !place.stepped {
            0.8
        } else {
            1.5
        };
        assert!(
            ratio < most,
            "{place:?}: {ratio}, entry {at_entry:?}, placed {as_placed:?}"
        );
    }
    Ok(())
}

/// Check that `free(NULL)` doesn't trap where the code has a way past the probe, and traps once where
/// it has none.
#[test]
fn freeing_null_costs_nothing() -> Result<()> {
    require_root()?;
    let library = c_library()?;
    let places = places(&library)?;
    let free = places.iter().find(|place| place.function == "free");
    let free = free.context("no free")?;
    // Behind the branch that NULL takes, or at the entry, or on some branch.
    let is_past_check = free.offset > 0 && !free.instruction.starts_with('j');
    let measured = measure(&library, "free(NULL)", free.entry + free.offset)?;
    let hits = if is_past_check {
        0
    } else {
        measured.operations
    };
    assert_eq!(measured.hits, hits, "{free:?}");
    Ok(())
}
