//! Tests of the samples that the fast path's code draws in a process: they are as many as chance says, of each size, at each
//! mean, in one thread and in several, beside calls that the kernel program decides.
//!
//! `cargo xtask accuracy` puts the table into `docs/accuracy.md`.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;

use anyhow::{Result, ensure};
use heaptrace_tests::{Heaptrace, Report, WAIT_UNTIL_MOVED, c_moved};

/// The sizes of the fixture's blocks.
const SIZES: [u64; 5] = [16, 64, 400, 3000, 20_000];

/// The means, each with the number of blocks of 64 bytes that are allocated past the slots. These calls trap, which takes
/// microseconds.
const MEANS: [(u64, u64); 3] = [(4 << 10, 60_000), (32 << 10, 120_000), (256 << 10, 240_000)];

const THREADS: [u64; 2] = [1, 4];

/// The ways of a call, by the names of the fixture's functions, with how many times as many calls there are.
const WAYS: [(&str, u64); 2] = [("through", 8), ("past", 1)];

/// A number of standard errors beyond which chance is no explanation: once in a million tests, with 60 numbers in each.
const FAR: f64 = 5.5;

/// The samples of a site: how many there should be, how many there are, and their standard deviation.
struct Site {
    expected: f64,
    found: f64,
    deviation: f64,
}

impl Site {
    /// The site of blocks that a function allocated. Each is sampled with the same probability, so the estimate of their number
    /// tells the number of samples.
    fn of(report: &Report, function: &str, size: u64, mean: u64, blocks: u64) -> Self {
        let probability = -(-(size as f64) / mean as f64).exp_m1();
        let blocks = blocks as f64;
        Self {
            expected: blocks * probability,
            found: report.within(function).allocations as f64 * probability,
            deviation: (blocks * probability * (1.0 - probability)).sqrt(),
        }
    }

    /// The distance from the expected number, in standard deviations.
    fn score(&self) -> f64 {
        (self.found - self.expected) / self.deviation
    }
}

/// The sites of each way in a run, those through the slots first.
fn run(threads: u64, mean: u64, blocks: u64) -> Result<[Vec<Site>; 2]> {
    let fixture = c_moved("drawn", "drawn-moved", "cc", &["-ldl"])?;
    let (threads_text, blocks_text) = (threads.to_string(), blocks.to_string());
    let command = [
        OsStr::new("env"),
        OsStr::new(WAIT_UNTIL_MOVED),
        fixture.as_ref(),
        OsStr::new(&threads_text),
        OsStr::new(&blocks_text),
    ];
    let options = ["--fast", "--sample", &mean.to_string()];
    let recording = Heaptrace::tracing()?.record(&options, &command)?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    let report = &recording.report;
    report.check_nothing_lost()?;
    assert_eq!(report.moved(), (1, 0));
    let mut ways = [Vec::new(), Vec::new()];
    for ((way, times), sites) in WAYS.iter().zip(&mut ways) {
        for size in SIZES {
            let function = format!("{way}_{size}");
            // The same bytes of each size.
            let count = threads * times * (blocks * 64 / size);
            sites.push(Site::of(report, &function, size, mean, count));
            // Each block was freed, some of them the other way.
            let left = report.within(&function).unfreed_allocations();
            ensure!(
                left == 0,
                "{function}: {left} blocks were not seen to be freed"
            );
        }
    }
    Ok(ways)
}

fn head() -> String {
    "
## With --fast

The fixture `drawn.c` was moved to the fast path. It allocated blocks of 16 to 20,000 bytes by calls through its linkage slots, where
the code in the process draws the samples, and an eighth as many by calls past them, where the kernel program does. Blocks of
either way were freed the other way, too; each sampled block was seen to be freed. Each cell has the number of samples, and behind it how far
that is from the expected number, in standard deviations, over all sizes. The last column is the mean square of these distances over
single sizes; it should be about 1.

| mean | threads | samples through the slots | samples past them | mean square |
|--:|--:|--:|--:|--:|
"
    .to_owned()
}

/// All sizes together.
fn sum(sites: &[Site]) -> Site {
    Site {
        expected: sites.iter().map(|it| it.expected).sum(),
        found: sites.iter().map(|it| it.found).sum(),
        deviation: sites
            .iter()
            .map(|it| it.deviation.powi(2))
            .sum::<f64>()
            .sqrt(),
    }
}

/// Check that samples of moved processes are as many as expected, by calls through the slots and past them, in sum and for each
/// size, and that blocks which were freed the other way are seen to be freed. Writes the table if
/// `HEAPTRACE_FAST_ACCURACY_TABLE` names a file.
#[test]
fn samples_are_as_many_as_expected() -> Result<()> {
    let (mut page, mut scores) = (head(), Vec::new());
    for (mean, blocks) in MEANS {
        for threads in THREADS {
            let ways = run(threads, mean, blocks / threads)?;
            let all = ways.iter().flatten();
            let of_run: Vec<f64> = all.map(Site::score).collect();
            let square = of_run.iter().map(|it| it * it).sum::<f64>() / of_run.len() as f64;
            let [through, past] = ways.map(|sites| sum(&sites));
            writeln!(
                page,
                "| {} KiB | {threads} | {:.0} ({:+.1}) | {:.0} ({:+.1}) | {square:.2} |",
                mean >> 10,
                through.found,
                through.score(),
                past.found,
                past.score(),
            )?;
            scores.extend(of_run);
            scores.extend([through.score(), past.score()]);
        }
    }
    println!("{page}");
    ensure!(scores.iter().all(|it| it.abs() < FAR), "{scores:.1?}");
    // A small bias of each number is a large one of their mean, and wrong deviations are seen in the mean square.
    let count = scores.len() as f64;
    let bias = scores.iter().sum::<f64>() / count.sqrt();
    let square = scores.iter().map(|it| it * it).sum::<f64>() / count;
    println!("bias {bias:.2}, mean square {square:.2}");
    ensure!(bias.abs() < FAR && (square - 1.0).abs() < FAR * (2.0 / count).sqrt());
    if let Some(path) = std::env::var_os("HEAPTRACE_FAST_ACCURACY_TABLE") {
        fs::write(path, page)?;
    }
    Ok(())
}
