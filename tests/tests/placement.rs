//! Tests of probe placement on the running kernel: the kernel emulates the selected instructions, and a selected location
//! is hit by every call and costs no more than the entry.
//!
//! Whether the kernel emulates or steps an instruction is seen by the page that it maps to step (`[uprobes]`). Another
//! tracer's return probes on allocator functions map the same page, so such a tracer must not be there.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{
    Heaptrace, MINUTE, bench_program, c, c_library_of_machine, require_root, run, until,
};

/// Check that the kernel emulates the instructions that heaptrace prefers, and that it steps others. The second shows
/// that the first can fail.
#[test]
fn preferred_instructions_are_emulated() -> Result<()> {
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

/// A function of the C library, and the location where heaptrace probes it.
#[derive(Debug)]
struct Location {
    function: String,
    entry: u64,
    offset: u64,
    instruction: String,
    stepped: bool,
}

fn locations(library: &Path) -> Result<Vec<Location>> {
    let heaptrace = Heaptrace::offline()?;
    let printed = heaptrace.run(&["placements".as_ref(), library.as_os_str()])?;
    let printed = printed.success()?.stdout;
    let mut locations = Vec::new();
    for line in printed.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [_, functions, entry, offset, instruction, stepped, _] = fields[..] else {
            anyhow::bail!("not a line of a table: {line}");
        };
        locations.push(Location {
            function: functions.split('/').next().unwrap_or_default().to_owned(),
            entry: u64::from_str_radix(entry.trim_start_matches("0x"), 16)?,
            offset: offset.parse()?,
            instruction: instruction.to_owned(),
            stepped: stepped.parse()?,
        });
    }
    ensure!(locations.len() > 5, "too few functions:\n{printed}");
    Ok(locations)
}

/// The measurements of `place.c`, of itself.
#[derive(Debug)]
struct Measured {
    nanoseconds: f64,
    operations: u64,
    hits: u64,
    stepped: bool,
}

/// So short that some measurements are not interrupted, also on a busy machine.
const SECONDS: &str = "0.005";

/// Waits until no other tracer has return probes on the function: a process without a probe of its own has no page then.
fn wait_alone(operation: &str) -> Result<()> {
    until("the end of other tracers", 3 * MINUTE, || {
        let mut command = Command::new(bench_program("place")?);
        let printed = run(command.args([operation, SECONDS]))?.success()?.stdout;
        Ok(printed.lines().any(|line| line == "stepped 0"))
    })
}

fn measure(library: &Path, operation: &str, offset: u64) -> Result<Measured> {
    let mut command = Command::new(bench_program("place")?);
    command.args([operation, SECONDS]).arg(library);
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

/// Measures until no other tracer was there before and after.
fn measure_alone(library: &Path, operation: &str, offset: u64, stepped: bool) -> Result<Measured> {
    let mut measured = measure(library, operation, offset)?;
    for _ in 0..5 {
        if measured.stepped == stepped {
            break;
        }
        wait_alone(operation)?;
        measured = measure(library, operation, offset)?;
    }
    Ok(measured)
}

/// Check for each function of the C library that its probe location is hit once per call, as the entry is, that the kernel
/// executes it as heaptrace says, and that it costs no more than the entry. If only the entry is stepped, as with most
/// `free`s, the location must cost clearly less.
#[test]
fn locations_cost_no_more_than_entries() -> Result<()> {
    // A busy machine only adds to a time, so the least times of both are compared, after as many rounds as it takes.
    const ROUNDS: usize = 60;
    require_root()?;
    let library = c_library_of_machine()?;
    for location in locations(&library)? {
        let function = &location.function;
        let at = location.entry + location.offset;
        let (mut at_entry, mut at_location) = (f64::INFINITY, f64::INFINITY);
        let mut is_cheap = false;
        for _ in 0..ROUNDS {
            // Of several looks, the one without a page is right: other tracers can only add it.
            let entry = measure_alone(&library, function, location.entry, false)?;
            let placed = measure_alone(&library, function, at, location.stepped)?;
            assert_eq!(entry.hits, entry.operations, "{location:?}");
            assert_eq!(placed.hits, placed.operations, "{location:?}");
            assert_eq!(placed.stepped, location.stepped, "{location:?}");
            at_entry = at_entry.min(entry.nanoseconds);
            at_location = at_location.min(placed.nanoseconds);
            let most = if entry.stepped && !location.stepped {
                0.8
            } else {
                1.5
            };
            is_cheap = location.offset == 0 || at_location < most * at_entry;
            if is_cheap {
                break;
            }
        }
        assert!(
            is_cheap,
            "{location:?}: {at_entry} ns at the entry, {at_location} ns at the location"
        );
    }
    Ok(())
}

/// Check that `free(NULL)` doesn't trap if the code has a way past the probe, and traps once if it has none.
#[test]
fn freeing_null_costs_nothing() -> Result<()> {
    require_root()?;
    let library = c_library_of_machine()?;
    let locations = locations(&library)?;
    let free = locations.iter().find(|it| it.function == "free");
    let free = free.context("no free")?;
    // The location is after the branch that NULL takes, or at the entry, or on some branch.
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
