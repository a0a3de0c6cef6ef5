//! Tests with the calls of a real program, recorded once in full and sampled many times.
//!
//! The program is the C compiler, because every machine that builds heaptrace has it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use heaptrace::join::Totals;
use heaptrace::text;

use crate::machine::{Machine, Truth, numbers};
use crate::random::Random;

/// Call sites that are kept apart; all others are merged into the last one.
const SITES: usize = 40;

/// The means in the table.
const MEANS: [u64; 4] = [1 << 10, 16 << 10, 128 << 10, 512 << 10];

/// The number of seeds for each mean.
const ROUNDS: u64 = 25;

enum Call {
    Allocate { site: usize, block: u64, size: u64 },
    Free { block: u64 },
}

/// Records the compiler while it compiles a source.
fn record() -> Vec<Call> {
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = folder.path().join("record.so");
    let built = Command::new("cc")
        .args(["-O2", "-shared", "-fPIC", "-pthread", "-o"])
        .arg(&library)
        .arg(root.join("tests/accuracy/record.c"))
        .status();
    assert!(built.unwrap().success(), "cc can't build the recorder");
    let traces = folder.path().join("traces");
    std::fs::create_dir(&traces).unwrap();
    let compiled = Command::new("cc")
        .args(["-O2", "-S", "-o", "/dev/null"])
        .arg(root.join("tests/accuracy/record.c"))
        .env("LD_PRELOAD", &library)
        .env("HEAPTRACE_TRACE", &traces)
        .status();
    assert!(
        compiled.unwrap().success(),
        "cc does not run under the recorder"
    );
    // The compiler proper, not its driver.
    let files = std::fs::read_dir(&traces).unwrap();
    let paths = files.map(|file| file.unwrap().path());
    let largest = paths.max_by_key(|path: &PathBuf| path.metadata().unwrap().len());
    parse(&std::fs::read(largest.unwrap()).unwrap())
}

fn parse(bytes: &[u8]) -> Vec<Call> {
    let records: Vec<[u64; 4]> = bytes
        .as_chunks::<32>()
        .0
        .iter()
        .map(|record| {
            let numbers = record.as_chunks::<8>().0;
            [0, 1, 2, 3].map(|index| u64::from_ne_bytes(numbers[index]))
        })
        .collect();
    let mut bytes_of = HashMap::<u64, u64>::new();
    for [kind, site, _, size] in &records {
        if *kind == 1 {
            *bytes_of.entry(*site).or_default() += size;
        }
    }
    let mut by_bytes: Vec<(u64, u64)> = bytes_of.into_iter().collect();
    by_bytes.sort_unstable_by_key(|(site, bytes)| (std::cmp::Reverse(*bytes), *site));
    let index: HashMap<u64, usize> = by_bytes
        .iter()
        .enumerate()
        .map(|(index, (site, _))| (*site, index.min(SITES - 1)))
        .collect();
    records
        .iter()
        .map(|[kind, site, block, size]| match kind {
            1 => Call::Allocate {
                site: index[site],
                block: *block,
                size: *size,
            },
            _ => Call::Free { block: *block },
        })
        .collect()
}

/// Replays the calls at a mean. Returns the truth and the estimates per site and in all, and the number of samples.
fn replay(calls: &[Call], mean: u64, seed: u64) -> (Vec<(Truth, Totals)>, (Truth, Totals), u64) {
    let mut machine = Machine::new(Random::new(seed), mean, 1, SITES);
    let mut live = HashMap::new();
    for call in calls {
        match call {
            Call::Allocate { site, block, size } => {
                live.insert(*block, machine.allocate(0, *site, *size));
            }
            Call::Free { block } => {
                if let Some(block) = live.remove(block) {
                    machine.free(block);
                }
            }
        }
    }
    let truths = machine.truths(0).to_vec();
    let truth = machine.truth();
    let update = machine.report();
    let mut sites: Vec<_> = truths
        .into_iter()
        .map(|it| (it, Totals::default()))
        .collect();
    for (id, site) in &update.sites {
        let stack = &update.stacks[site.stack.0 as usize];
        let location = update.locations[stack.locations[0].0 as usize];
        // The address that `Machine` gave the site, minus one, as for all return addresses.
        let index = (location.address >> 4) as usize;
        assert!(index < SITES, "{id:?}");
        sites[index].1 = site.totals;
    }
    (sites, (truth, update.totals), update.quality.samples)
}

fn percent(part: f64, whole: f64) -> String {
    format!("{:.1} %", part * 100.0 / whole.max(1.0))
}

/// Check that sampled estimates of a recorded program agree with the exact numbers, per site and in all, within chance, and
/// that stated errors are true. Writes the table if `HEAPTRACE_ACCURACY_TABLE` names a file.
#[test]
fn estimates_of_a_recorded_program() {
    let calls = record();
    let (exact, (truth, totals), samples) = replay(&calls, 1, 0);
    assert!(truth.allocations > 1_000, "{truth:?}");
    assert_eq!(samples, truth.allocations);
    for (truth, totals) in exact.iter().chain([&(truth, totals)]) {
        for number in numbers(truth, totals) {
            assert_eq!((number.estimate, number.error), (number.truth, 0));
        }
    }
    let mut page = head(&truth);
    for mean in MEANS {
        let mut off = [0.0; 4];
        let mut stated = [0.0; 4];
        let (mut taken, mut within, mut sites) = (0, 0, 0);
        // Sums over all rounds: a small bias in each round is a large deviation of the sum.
        let (mut sum, mut sum_of_site) = ([0.0; 4], [0.0; SITES]);
        for round in 0..ROUNDS {
            let (by_site, (truth, totals), samples) = replay(&calls, mean, mean + round);
            taken += samples;
            for (index, number) in numbers(&truth, &totals).into_iter().enumerate() {
                sum[index] += number.signed_sigmas();
                off[index] += number.estimate.abs_diff(number.truth) as f64 / ROUNDS as f64;
                stated[index] += number.error as f64 / ROUNDS as f64;
            }
            for (index, (truth, totals)) in by_site.into_iter().enumerate() {
                let number = numbers(&truth, &totals)[1];
                // Only sites with enough samples for a meaningful error.
                if number.truth > 10 * mean {
                    sum_of_site[index] += number.signed_sigmas();
                    sites += 1;
                    within += u64::from(number.stated_sigmas() <= 2.0);
                }
            }
        }
        let far = |sum: &f64| sum.abs() / (ROUNDS as f64).sqrt() > 5.0;
        assert!(!sum.iter().any(far), "mean {mean}: {sum:?}");
        assert!(!sum_of_site.iter().any(far), "mean {mean}: {sum_of_site:?}");
        if sites >= 200 {
            let share = within as f64 / sites as f64;
            assert!((0.88..=0.99).contains(&share), "mean {mean}: {share}");
        }
        let truths = numbers(&truth, &Totals::default()).map(|number| number.truth as f64);
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} | {} |",
            text::bytes(mean),
            text::count(taken / ROUNDS),
            pair(off[1], stated[1], truths[1]),
            pair(off[0], stated[0], truths[0]),
            pair(off[3], stated[3], truths[3]),
            pair(off[2], stated[2], truths[2]),
            if sites == 0 {
                "-".to_owned()
            } else {
                percent(within as f64, sites as f64)
            },
        );
    }
    page.push_str(&by_site(&calls));
    println!("{page}");
    if let Some(path) = std::env::var_os("HEAPTRACE_ACCURACY_TABLE") {
        std::fs::write(path, page).unwrap();
    }
}

fn pair(off: f64, stated: f64, truth: f64) -> String {
    format!("{}, ± {}", percent(off, truth), percent(stated, truth))
}

fn head(truth: &Truth) -> String {
    format!(
        "# Accuracy

Written by `cargo xtask accuracy`.

Estimates of samples, compared with the exact numbers. The calls are those of the C compiler's `cc1` on a small source: {} allocations
with {}, of which {} with {} are live at the end. They were recorded one by one. Then they were sampled by the code of the kernel
program, and joined by the code of the agent, {ROUNDS} times at each mean.

## All sites together

Each cell has the mean distance of the estimate from the truth, and ± the mean stated standard error. A distance should be four fifths
of a standard error on average. The last column says how often the allocated bytes of a single site were within two stated standard
errors, for sites with more than ten means of bytes; 95 % is right.

| mean | samples | allocated bytes | allocations | live bytes | live blocks | sites within 2 errors |
|--:|--:|--:|--:|--:|--:|--:|
",
        text::count(truth.allocations),
        text::bytes(truth.allocated_bytes),
        text::count(truth.live_allocations),
        text::bytes(truth.live_bytes),
    )
}

/// The largest sites in one run.
fn by_site(calls: &[Call]) -> String {
    const MEAN: u64 = 16 << 10;
    let mut page = format!(
        "
## The largest sites in one run

At a mean of {}.

| site | allocated bytes | estimate | allocations | estimate |
|--:|--:|--:|--:|--:|
",
        text::bytes(MEAN)
    );
    let (sites, _, _) = replay(calls, MEAN, 1);
    for (index, (truth, totals)) in sites.iter().take(12).enumerate() {
        let _ = writeln!(
            page,
            "| {} | {} | {}{} | {} | {}{} |",
            index + 1,
            text::bytes(truth.allocated_bytes),
            text::bytes(totals.allocated_bytes),
            text::plus_minus(totals.errors.allocated_bytes, text::bytes),
            text::count(truth.allocations),
            text::count(totals.allocations),
            text::plus_minus(totals.errors.allocations, text::count),
        );
    }
    page
}
