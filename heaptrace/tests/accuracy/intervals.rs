//! How often stated intervals hold the true number, and how wide they are.

use std::fmt::Write as _;

use heaptrace::join::{Totals, Update};
use heaptrace::output::{Grouping, Interval, Intervals, Label, Metric, ReportInput, groups};
use heaptrace::profile::{Mode, Profile, RunInfo, SizeRange, Symbols};
use heaptrace::text;

use crate::machine::{Machine, Truth};
use crate::random::Random;

/// The means in the table.
pub(crate) const MEANS: [u64; 3] = [4 << 10, 64 << 10, 512 << 10];

/// The largest sites that are in the table, by each number.
const LARGEST: usize = 3;

/// The share of runs in which an interval has to hold the true number.
const LEAST: f64 = 0.94;

/// The numbers in the table.
const METRICS: [Metric; 4] = [
    Metric::TotalBytes,
    Metric::TotalAllocations,
    Metric::LiveBytes,
    Metric::LiveAllocations,
];

/// The true value of a metric.
fn true_value(metric: Metric, truth: &Truth) -> u64 {
    match metric {
        Metric::TotalBytes => truth.allocated_bytes,
        Metric::TotalAllocations => truth.allocations,
        Metric::LiveBytes => truth.live_bytes,
        Metric::LiveAllocations => truth.live_allocations,
        other => unreachable!("{other:?} is not in the table"),
    }
}

/// The profile of a simulated run.
fn profile_of(update: Update, mean_bytes: u64) -> Profile {
    let mut profile = Profile::new(RunInfo {
        version: String::new(),
        mode: Mode::Sampled { mean_bytes },
        sizes: SizeRange::ALL,
        started_unix_ns: 0,
        target: String::new(),
        kernel: String::new(),
    });
    profile.fold(update).unwrap();
    profile
}

/// The intervals of a simulated run.
pub(crate) fn intervals_of(update: Update, mean_bytes: u64) -> Intervals {
    Intervals::of(&profile_of(update, mean_bytes))
}

/// How often intervals held the true number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    runs: u64,
    held: u64,
    /// How often the true number was below the interval.
    below: u64,
    /// Widths, as parts of the true number.
    widths: Vec<f64>,
}

impl Tally {
    pub(crate) fn add(&mut self, truth: u64, interval: Interval) {
        let Interval { low, high } = interval;
        self.runs += 1;
        self.held += u64::from((low..=high).contains(&truth));
        self.below += u64::from(truth < low);
        self.widths.push((high - low) as f64 / truth.max(1) as f64);
    }

    fn share(&self, number: u64) -> f64 {
        number as f64 / self.runs.max(1) as f64
    }

    /// Whether the intervals held often enough, as far as so many runs can tell.
    pub(crate) fn is_covered(&self) -> bool {
        // The shares of many runs are close enough to the true one. Those of few runs get three standard errors.
        let tolerance = if self.runs >= 2_000 {
            0.0
        } else {
            3.0 * (LEAST * (1.0 - LEAST) / self.runs.max(1) as f64).sqrt()
        };
        self.share(self.held) >= LEAST - tolerance
    }

    fn cell(&mut self) -> String {
        self.widths.sort_by(f64::total_cmp);
        let median = self.widths.get(self.widths.len() / 2).copied();
        format!(
            "{:.1} % (below {:.1} %), {}",
            self.share(self.held) * 100.0,
            self.share(self.below) * 100.0,
            width(median.unwrap_or_default()),
        )
    }
}

/// A relative width: in percent, or as a multiple of the true number.
fn width(relative: f64) -> String {
    if relative < 2.0 {
        format!("{:.0} %", relative * 100.0)
    } else {
        format!("{relative:.1} ×")
    }
}

/// The tallies of one mean: for each metric those of the whole run and of each of the largest sites.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tallies([[Tally; LARGEST + 1]; METRICS.len()]);

impl Tallies {
    /// Adds a run, with the truths and totals of its sites and of all together.
    pub(crate) fn add(
        &mut self,
        intervals: &Intervals,
        sites: &[(Truth, Totals)],
        all: &(Truth, Totals),
    ) {
        for (metric, tallies) in METRICS.into_iter().zip(&mut self.0) {
            let mut by_size: Vec<_> = sites.iter().collect();
            by_size.sort_by_key(|(truth, _)| std::cmp::Reverse(true_value(metric, truth)));
            let largest = by_size.into_iter().take(LARGEST);
            for (tally, (truth, totals)) in
                tallies.iter_mut().zip(std::iter::once(all).chain(largest))
            {
                let interval = intervals.around(metric, totals).unwrap();
                tally.add(true_value(metric, truth), interval);
            }
        }
    }

    /// Adds the runs of other tallies.
    pub(crate) fn merge(&mut self, other: Self) {
        let all = self.0.iter_mut().flatten();
        for (tally, other) in all.zip(other.0.into_iter().flatten()) {
            tally.runs += other.runs;
            tally.held += other.held;
            tally.below += other.below;
            tally.widths.extend(other.widths);
        }
    }

    /// The rows of the table, and what does not hold often enough.
    pub(crate) fn rows(&mut self, mean: u64, faults: &mut Vec<String>) -> String {
        let mut rows = String::new();
        for (metric, tallies) in METRICS.into_iter().zip(&mut self.0) {
            let _ = write!(rows, "| {} | {} |", text::bytes(mean), metric.title());
            for (index, tally) in tallies.iter_mut().enumerate() {
                let cell = tally.cell();
                if !tally.is_covered() {
                    faults.push(format!(
                        "{} at {}, column {}: {cell}",
                        metric.title(),
                        text::bytes(mean),
                        index + 1
                    ));
                }
                let _ = write!(rows, " {cell} |");
            }
            rows.push('\n');
        }
        rows
    }
}

/// The head of the table.
pub(crate) fn head(runs: u64) -> String {
    format!(
        "
## How often intervals hold

Each cell has the share of {} runs in which the true number was within the stated interval, in how many of these runs it was below
the interval, and the median width of the intervals as a part (or a multiple) of the true number. 95 % are stated, and {:.0} % are required. The sites
are the largest by the number of the row.

| mean | number | all sites | largest site | second | third |
|--:|---|---|---|---|---|
",
        text::count(runs),
        LEAST * 100.0
    )
}

/// Tallies of the whole run, for each metric.
#[derive(Debug, Default)]
struct Whole([Tally; METRICS.len()]);

impl Whole {
    fn add(&mut self, machine: Machine, mean: u64) {
        let truth = machine.truth();
        let update = machine.report();
        let totals = update.totals;
        self.add_totals(&truth, &totals, &intervals_of(update, mean));
    }

    fn add_totals(&mut self, truth: &Truth, totals: &Totals, intervals: &Intervals) {
        for (metric, tally) in METRICS.into_iter().zip(&mut self.0) {
            tally.add(
                true_value(metric, truth),
                intervals.around(metric, totals).unwrap(),
            );
        }
    }

    fn check(&mut self) {
        for (metric, tally) in METRICS.into_iter().zip(&mut self.0) {
            let cell = tally.cell();
            println!("{}: {cell}", metric.title());
            assert!(tally.is_covered(), "{}: {cell}", metric.title());
        }
    }
}

/// Check that intervals hold for one larger block among many tiny ones.
#[test]
fn one_larger_block_among_tiny_ones() {
    for mean in MEANS {
        let mut whole = Whole::default();
        for run in 0..400 {
            let mut machine = Machine::new(Random::new(2_000_000 + run), mean, 1, 1);
            machine.allocate(0, 0, 100 << 10);
            for size in [16, 24, 40, 72] {
                machine.allocate_many(0, 0, size, 4_500, true);
                machine.allocate_many(0, 0, size, 500, false);
            }
            whole.add(machine, mean);
        }
        whole.check();
    }
}

/// Check that intervals hold if the rate changes during the run, and for blocks of all ages.
#[test]
fn changing_rates() {
    let mut whole = Whole::default();
    for run in 0..400 {
        let mut machine = Machine::new(Random::new(3_000_000 + run), 16 << 10, 1, 1);
        let mut random = Random::new(4_000_000 + run);
        let mut live = Vec::new();
        for turn in 0..3_000 {
            if turn % 500 == 0 {
                machine.sampler.mean = 4 << (10 + 2 * random.below(4));
            }
            live.push(machine.allocate(0, 0, random.size(16, 32 << 10)));
            if live.len() > 300 {
                let index = random.below(live.len() as u64) as usize;
                machine.free(live.swap_remove(index));
            }
        }
        whole.add(machine, 256 << 10);
    }
    whole.check();
}

/// Check that intervals hold for sums of sites that an output makes: for groups.
#[test]
fn groups_of_sites() {
    const MEAN: u64 = 64 << 10;
    let mut whole = Whole::default();
    for run in 0..400 {
        let mut machine = Machine::new(Random::new(5_000_000 + run), MEAN, 1, 30);
        let mut random = Random::new(6_000_000 + run);
        for turn in 0..2_000 {
            let site = random.below(30);
            // Every site has sizes of its own.
            let block =
                machine.allocate(0, site as usize, 20 + site * site * 30 + random.below(20));
            if turn % 3 > 0 {
                machine.free(block);
            }
        }
        let truth = machine.truth();
        let profile = profile_of(machine.report(), MEAN);
        let symbols = Symbols::default();
        let grouping = Grouping {
            by: Label::Process,
            metric: Metric::LiveBytes,
            cumulative: false,
            top: None,
        };
        let (groups, _) = groups(&ReportInput::new(&profile, &symbols), grouping);
        assert_eq!(groups.len(), 1);
        whole.add_totals(&truth, &groups[0].totals, &Intervals::of(&profile));
    }
    whole.check();
}
