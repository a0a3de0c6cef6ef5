//! Fuzz tests: every parser of foreign bytes gets a fixed number of inputs, or as many as `cargo xtask fuzz` asks for. None
//! may panic, or use more memory or time than its bound. A last test compares generated unwind information with framehop.

mod driver;
mod frames;
mod inputs;
mod memory;
mod mutate;
#[path = "../walks/peer.rs"]
mod peer;

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use heaptrace::fuzz::{BOUNDARIES, Boundary};
use heaptrace::unwind::{Limits, build, lookup};
use heaptrace_common::unwind::{LOST_BP, Memory, Registers, Rule, cfa, outcome, step};
use heaptrace_tests::{Random, target};
use object::{Object as _, ObjectSection as _};

use driver::Until;
use frames::Harm;
use peer::{Opinion, Peer};

/// The number of inputs of each boundary in a run of all tests.
const INPUTS: u64 = 3_000;

fn number(name: &str, default: u64) -> Result<u64> {
    match env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name}={text}")),
        Err(_) => Ok(default),
    }
}

/// Check that no boundary fails on its corpus or on inputs generated from it. A failure names the seed and the input.
/// `cargo xtask fuzz` runs this for one boundary at a time, for longer.
#[test]
fn every_boundary_holds() -> Result<()> {
    let seed = number("HEAPTRACE_FUZZ_SEED", 1)?;
    let until = match env::var_os("HEAPTRACE_FUZZ_SECONDS") {
        Some(_) => Until::Time(Duration::from_secs(number("HEAPTRACE_FUZZ_SECONDS", 0)?)),
        None => Until::Inputs(number("HEAPTRACE_FUZZ_INPUTS", INPUTS)?),
    };
    let only = env::var("HEAPTRACE_FUZZ_BOUNDARY").ok();
    let folder = env::var_os("HEAPTRACE_FUZZ_FOLDER");
    let folder = folder.map_or_else(|| target().join("fuzz-found"), PathBuf::from);
    let mut count = 0;
    for boundary in BOUNDARIES {
        if only.as_ref().is_some_and(|only| only != boundary.name) {
            continue;
        }
        let done = driver::run(boundary, seed, until, &folder)?;
        // The line that `cargo xtask fuzz` reads.
        println!(
            "fuzz {} seed={seed} inputs={} taken={} variety={} bytes={} micros={}",
            boundary.name,
            done.inputs,
            done.taken,
            done.variety,
            done.most_bytes,
            done.slowest.as_micros()
        );
        // If almost all inputs were refused at once, the test would prove little.
        ensure!(
            done.taken * 50 > done.inputs && done.variety > 2,
            "{}: {done:?}",
            boundary.name
        );
        count += 1;
    }
    ensure!(count > 0, "there is no boundary {only:?}");
    Ok(())
}

/// Check that each boundary has a corpus and a cargo-fuzz target, and that each corpus has a boundary.
#[test]
fn every_boundary_has_a_corpus_and_a_target() -> Result<()> {
    for boundary in BOUNDARIES {
        ensure!(!inputs::corpus(boundary)?.is_empty(), "{}", boundary.name);
        let target = format!("fuzz/fuzz_targets/{}.rs", boundary.name);
        let text = std::fs::read_to_string(heaptrace_tests::workspace().join(&target));
        let is_its = text.is_ok_and(|text| text.contains(&format!("\"{}\"", boundary.name)));
        ensure!(is_its, "{target} is missing, or not of this boundary");
    }
    for entry in std::fs::read_dir(heaptrace_tests::workspace().join("fuzz/corpus"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if Boundary::named(&name).is_none() {
            bail!("fuzz/corpus/{name} is of no boundary");
        }
    }
    Ok(())
}

/// Limits that small files reach only if their tables grow too large.
const LIMITS: Limits = Limits {
    rows: 20_000,
    functions: 2_000,
    section_bytes: 1 << 16,
    time: Duration::from_secs(3),
};

/// Memory in which every word is a different high address.
struct Noise;

impl Memory for Noise {
    fn read(&mut self, address: u64) -> Option<u64> {
        Some(Random(address).number() & 0xffff_fff8 | 0x7ff0_0000_0000)
    }
}

/// Check that generated unwind information leads to framehop's caller wherever our tables lead to a caller.
#[test]
fn generated_unwind_information_agrees_with_framehop() -> Result<()> {
    let seed = number("HEAPTRACE_FUZZ_SEED", 1)?;
    let mut random = Random(seed);
    let mut compared = 0;
    for number in 0..400 {
        let data = frames::file(&mut random, Harm::Little);
        let Ok(table) = build(data.as_slice(), &LIMITS) else {
            continue;
        };
        let file = object::File::parse(data.as_slice())?;
        let code = file
            .section_by_name(".eh_frame")
            .context("no section")?
            .address();
        let code = code as usize - frames::CODE;
        let mut peer = Peer::new();
        peer.add(&file, 0, (0, data.len() as u64));
        for _ in 0..100 {
            let start = Registers {
                ip: (frames::CODE + random.below(code)) as u64,
                sp: 0x7fe0_0000_0000 + random.number() % 4096 * 8,
                bp: 0x7fe0_0010_0000 + random.number() % 4096 * 8,
            };
            let rule = lookup(&table, start.ip).unwrap_or(Rule::NONE);
            // framehop counts in words, and doesn't follow frame addresses that are read from memory.
            if rule.cfa_offset % 8 != 0 || !matches!(rule.cfa, cfa::SP | cfa::BP) {
                continue;
            }
            let mut ours = start;
            if step(rule, &mut ours, &mut Noise) != outcome::CALLER {
                continue;
            }
            let theirs = peer.step(start, true, &mut Noise);
            let agree = matches!(theirs, Opinion::Caller(it) if (it.ip, it.sp) == (ours.ip, ours.sp)
                && (it.bp == ours.bp || ours.bp == LOST_BP));
            ensure!(
                agree,
                "file {number} of seed {seed}: at {:#x} {rule:?} gives {ours:x?}, framehop {theirs:x?}",
                start.ip
            );
            compared += 1;
        }
    }
    println!("{compared} addresses agree");
    assert!(compared > 1000, "{compared}");
    Ok(())
}
