//! Tests with the calls of a real program, recorded once in full and sampled many times.
//!
//! The program is the C compiler, because every machine that builds heaptrace has it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use heaptrace::join::{Totals, Update};
use heaptrace::output::{Intervals, Metric};
use heaptrace::text;

use crate::intervals::{self, Tallies, intervals_of};
use crate::machine::{Machine, Truth, numbers};
use crate::random::Random;

/// Call sites that are kept apart; all others are merged into the last one.
const SITES: usize = 40;

/// The means in the table.
const MEANS: [u64; 4] = [1 << 10, 16 << 10, 128 << 10, 512 << 10];

/// The number of seeds for each mean.
const ROUNDS: u64 = 25;

/// The number of seeds for each mean of the table of intervals, when it is written, and when it is only tested.
const MANY: u64 = 2_000;
const FEW: u64 = 30;

enum Call {
    Allocate {
        site: usize,
        size: u64,
    },
    /// Frees the block of an allocation, by the number of that allocation.
    Free {
        allocation: usize,
    },
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
    let (mut live, mut allocations) = (HashMap::new(), 0);
    records
        .iter()
        .filter_map(|[kind, site, block, size]| match kind {
            1 => {
                live.insert(*block, allocations);
                allocations += 1;
                let site = index[site];
                Some(Call::Allocate { site, size: *size })
            }
            _ => {
                let allocation = live.remove(block)?;
                Some(Call::Free { allocation })
            }
        })
        .collect()
}

/// A replay: truths and estimates.
struct Replay {
    sites: Vec<(Truth, Totals)>,
    all: (Truth, Totals),
    samples: u64,
    intervals: Intervals,
}

/// Replays the calls at a mean.
fn replay(calls: &[Call], mean: u64, seed: u64) -> Replay {
    let mut machine = Machine::new(Random::new(seed), mean, 1, SITES);
    let mut blocks = Vec::new();
    for call in calls {
        match call {
            Call::Allocate { site, size } => blocks.push(machine.allocate(0, *site, *size)),
            Call::Free { allocation } => machine.free(blocks[*allocation]),
        }
    }
    let truths = machine.truths(0).to_vec();
    let truth = machine.truth();
    let update = machine.report();
    Replay {
        sites: truths.into_iter().zip(sites_of(&update)).collect(),
        all: (truth, update.totals),
        samples: update.quality.samples,
        intervals: intervals_of(update, mean),
    }
}

/// Replays the calls on one CPU, quickly: calls between samples only reduce its countdown. Takes the truths from another replay.
fn replay_quickly(calls: &[Call], truths: &Replay, mean: u64, seed: u64) -> Replay {
    let mut machine = Machine::new(Random::new(seed), mean, 1, SITES);
    let mut blocks = Vec::new();
    for call in calls {
        match call {
            Call::Allocate { size, .. } if machine.declines(*size) => blocks.push(None),
            Call::Allocate { site, size } => {
                blocks.push(Some(machine.allocate_on(0, 0, *site, *size)));
            }
            Call::Free { allocation } => {
                if let Some(block) = blocks[*allocation] {
                    machine.free(block);
                }
            }
        }
    }
    let update = machine.report();
    let truths_of_sites = truths.sites.iter().map(|(truth, _)| *truth);
    Replay {
        sites: truths_of_sites.zip(sites_of(&update)).collect(),
        all: (truths.all.0, update.totals),
        samples: update.quality.samples,
        intervals: intervals_of(update, mean),
    }
}

/// The totals of each site.
fn sites_of(update: &Update) -> Vec<Totals> {
    let mut sites = vec![Totals::default(); SITES];
    for (id, site) in &update.sites {
        let stack = &update.stacks[site.stack.0 as usize];
        let location = update.locations[stack.locations[0].0 as usize];
        // The address that `Machine` gave the site, minus one, as for all return addresses.
        let index = (location.address >> 4) as usize;
        assert!(index < SITES, "{id:?}");
        sites[index] = site.totals;
    }
    sites
}

fn percent(part: f64, whole: f64) -> String {
    format!("{:.1} %", part * 100.0 / whole.max(1.0))
}

/// Check that sampled estimates of a recorded program agree with the exact numbers, per site and in all, within chance, and
/// that stated errors are true. Writes the table if `HEAPTRACE_ACCURACY_TABLE` names a file.
#[test]
fn estimates_of_a_recorded_program() {
    let calls = record();
    let exact = replay(&calls, 1, 0);
    let truth = exact.all.0;
    assert!(truth.allocations > 1_000, "{truth:?}");
    assert_eq!(exact.samples, truth.allocations);
    for (truth, totals) in exact.sites.iter().chain([&exact.all]) {
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
            let replay = replay(&calls, mean, mean + round);
            taken += replay.samples;
            let (truth, totals) = &replay.all;
            for (index, number) in numbers(truth, totals).into_iter().enumerate() {
                sum[index] += number.signed_sigmas();
                off[index] += number.estimate.abs_diff(number.truth) as f64 / ROUNDS as f64;
                stated[index] += number.error as f64 / ROUNDS as f64;
            }
            for (index, (truth, totals)) in replay.sites.into_iter().enumerate() {
                let number = numbers(&truth, &totals)[1];
                // Only sites with enough samples for a sum of many rounds.
                if number.truth > 10 * mean {
                    sum_of_site[index] += number.signed_sigmas();
                    sites += 1;
                    let interval = replay
                        .intervals
                        .around(Metric::TotalBytes, &totals)
                        .unwrap();
                    within += u64::from((interval.low..=interval.high).contains(&number.truth));
                }
            }
        }
        let far = |sum: &f64| sum.abs() / (ROUNDS as f64).sqrt() > 5.0;
        assert!(!sum.iter().any(far), "mean {mean}: {sum:?}");
        assert!(!sum_of_site.iter().any(far), "mean {mean}: {sum_of_site:?}");
        if sites >= 200 {
            let share = within as f64 / sites as f64;
            assert!((0.90..=0.99).contains(&share), "mean {mean}: {share}");
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
    let table = std::env::var_os("HEAPTRACE_ACCURACY_TABLE");
    let rounds = if table.is_some() { MANY } else { FEW };
    let mut faults = Vec::new();
    page.push_str(&how_often_intervals_hold(
        &calls,
        &exact,
        rounds,
        &mut faults,
    ));
    page.push_str(&by_site(&calls));
    println!("{page}");
    assert!(faults.is_empty(), "intervals hold too rarely: {faults:#?}");
    if let Some(path) = table {
        std::fs::write(path, page).unwrap();
    }
}

/// The table of how often intervals hold. Runs are divided among the CPUs.
fn how_often_intervals_hold(
    calls: &[Call],
    exact: &Replay,
    rounds: u64,
    faults: &mut Vec<String>,
) -> String {
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
    let mut page = intervals::head(rounds);
    for mean in intervals::MEANS {
        let mut tallies = Tallies::default();
        std::thread::scope(|scope| {
            let parts = (0..threads).map(|thread| {
                scope.spawn(move || {
                    let mut tallies = Tallies::default();
                    for round in (thread..rounds).step_by(threads as usize) {
                        let seed = mean * 3 + round;
                        let replay = replay_quickly(calls, exact, mean, seed);
                        tallies.add(&replay.intervals, &replay.sites, &replay.all);
                    }
                    tallies
                })
            });
            let parts: Vec<_> = parts.collect();
            for part in parts {
                tallies.merge(part.join().unwrap());
            }
        });
        page.push_str(&tallies.rows(mean, faults));
    }
    page
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
of a standard error on average. The last column says how often the allocated bytes of a single site were within their interval,
for sites with more than ten means of bytes; 95 % is right.

| mean | samples | allocated bytes | allocations | live bytes | live blocks | sites within their interval |
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
    let replay = replay(calls, MEAN, 1);
    for (index, (truth, totals)) in replay.sites.iter().take(12).enumerate() {
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
