//! Tests of intervals: against the Poisson distribution, and at their limits.

use super::sample;
use crate::join::{Errors, Process, RateChange, Totals, Unseen};
use crate::output::Metric;
use crate::output::interval::{Counter, Interval, Intervals};
use crate::profile::{Mode, Profile, SizeRange};

const MEAN: u64 = 64 << 10;

/// A run without sites.
fn profile(mode: Mode, sizes: Vec<u64>) -> Profile {
    let mut profile = Profile::new(sample::profile().info);
    profile.info.mode = mode;
    profile.sizes = sizes;
    profile
}

fn intervals(mode: Mode, sizes: Vec<u64>) -> Intervals {
    Intervals::of(&profile(mode, sizes))
}

fn sampled() -> Intervals {
    intervals(Mode::Sampled { mean_bytes: MEAN }, Vec::new())
}

/// Live memory of which a part was seen, and the rest is that of so many samples of tiny blocks.
fn live(seen: u64, samples: u64) -> Totals {
    Totals {
        live_bytes: seen + samples * MEAN,
        errors: Errors {
            live_bytes: (MEAN as f64 * (samples as f64).sqrt()) as u64,
            mean_bytes: MEAN,
            unseen: Unseen {
                live_bytes: samples * MEAN,
                ..Unseen::default()
            },
            ..Errors::default()
        },
        ..Totals::default()
    }
}

/// The probability that a Poisson variable is at most this number.
fn at_most(number: u64, expectation: f64) -> f64 {
    let mut term = (-expectation).exp();
    let mut sum = term;
    for k in 1..=number {
        term *= expectation / k as f64;
        sum += term;
    }
    sum
}

/// Check the ends for samples of tiny blocks against the Poisson distribution itself: each is exceeded in 2.3 % of
/// runs, or in less where samples are few.
#[test]
fn tiny_blocks_are_a_poisson_count() {
    for samples in [0, 1, 2, 3, 5, 10, 30, 100, 300] {
        let totals = live(0, samples);
        let Interval { low, high } = sampled().around(Metric::LiveBytes, &totals).unwrap();
        let above = at_most(samples, high as f64 / MEAN as f64);
        assert!((0.021..0.024).contains(&above), "{samples}: {above}");
        assert!(low <= totals.live_bytes);
        if samples > 0 {
            let below = 1.0 - at_most(samples - 1, low as f64 / MEAN as f64);
            assert!((0.008..0.024).contains(&below), "{samples}: {below}");
        }
    }
}

/// Check that what was seen is certain: it is below the lower end, and adds nothing to the width.
#[test]
fn seen_memory_is_certain() {
    let seen = 100 << 20;
    let around = |totals| sampled().around(Metric::LiveBytes, &totals).unwrap();
    let (with, without) = (around(live(seen, 5)), around(live(0, 5)));
    assert_eq!(
        (with.low - seen, with.high - seen),
        (without.low, without.high)
    );
    assert_eq!(around(live(seen, 0)).low, seen);
}

/// Check that the lower end leaves out what may be a single block: one of 60 KiB that was sampled at a mean of
/// 64 KiB, so that its estimate is 98.6 KiB.
#[test]
fn one_block_may_be_all() {
    let (size, mean) = (60_f64 * 1024.0, MEAN as f64);
    let p = -(-size / mean).exp_m1();
    let mut totals = live(size as u64, 0);
    totals.live_bytes = (size / p) as u64;
    totals.errors.unseen.live_bytes = totals.live_bytes - size as u64;
    totals.errors.live_bytes = (size * (1.0 - p).sqrt() / p) as u64;
    let interval = sampled().around(Metric::LiveBytes, &totals).unwrap();
    assert_eq!(interval.low, size as u64);
    assert!(interval.high > 3 * MEAN, "{interval:?}");
}

/// Check that blocks without a sample are bounded by the sizes that were requested, and by the number of calls.
#[test]
fn unseen_blocks_are_requested_ones() {
    let high = |sizes: &[(usize, u64)]| {
        let mut classes = vec![0; 65];
        for (class, calls) in sizes {
            classes[*class] = *calls;
        }
        let intervals = intervals(Mode::Sampled { mean_bytes: MEAN }, classes);
        let around = intervals.around(Metric::LiveAllocations, &Totals::default());
        around.unwrap().high
    };
    let bytes = sampled().around(Metric::LiveBytes, &Totals::default());
    let bytes = bytes.unwrap().high as f64;
    // Class 5 begins at 16 bytes, class 11 at 1 KiB.
    assert_eq!(high(&[(5, 1 << 40)]), (bytes / 16.0).ceil() as u64);
    assert_eq!(high(&[(11, 1 << 40)]), (bytes / 1024.0).ceil() as u64);
    assert_eq!(high(&[(5, 100)]), 100);
    let rest = (bytes - 1_600.0) / 1024.0;
    assert_eq!(
        high(&[(5, 100), (11, 1 << 40)]),
        (100.0 + rest).ceil() as u64
    );
    assert_eq!(high(&[]), 0);
    let unknown = sampled().around(Metric::LiveAllocations, &Totals::default());
    assert_eq!(unknown.unwrap().high, (bytes / 16.0).ceil() as u64);
}

/// Check that sizes that are not recorded can't be unseen ones.
#[test]
fn sizes_out_of_range_are_left_out() {
    let mut profile = profile(Mode::Sampled { mean_bytes: MEAN }, vec![1 << 40; 65]);
    let high = |profile: &Profile| {
        let around = Intervals::of(profile).around(Metric::LiveAllocations, &Totals::default());
        around.unwrap().high
    };
    let one_byte = high(&profile);
    profile.info.sizes = SizeRange {
        min: 1_500,
        max: 5_000,
    };
    assert_eq!(high(&profile), one_byte.div_ceil(1_500));
    // Three classes have such sizes.
    profile.sizes = vec![7; 65];
    assert_eq!(high(&profile), 21);
}

/// Check that exact numbers have no interval, and that the rates of the run count where nothing was sampled.
#[test]
fn modes_and_rates() {
    let exact = intervals(Mode::Exact, Vec::new());
    assert_eq!(exact.around(Metric::LiveBytes, &live(0, 3)), None);
    let mut mapped = live(1 << 20, 0);
    mapped.errors.mean_bytes = 1;
    assert_eq!(sampled().around(Metric::LiveBytes, &mapped), None);

    let mut profile = profile(Mode::Sampled { mean_bytes: MEAN }, Vec::new());
    let nothing = Totals::default();
    let high = |profile: &Profile, totals| {
        let around = Intervals::of(profile).around(Metric::LiveBytes, totals);
        around.unwrap().high
    };
    let before = high(&profile, &nothing);
    profile.rates.push(RateChange {
        at_ns: 1,
        process: None,
        mean_bytes: 4 * MEAN,
    });
    assert!(high(&profile, &nothing).abs_diff(4 * before) <= 4);
    // The samples of a site know their own mean.
    assert!(high(&profile, &live(0, 1)) < 7 * MEAN);
}

/// Check that an ended process has nothing live, and a running one left nothing, without an upper end.
#[test]
fn impossible_memory_is_exactly_zero() {
    let intervals = sampled();
    let nothing = Totals::default();
    for ended in [false, true] {
        let process = Process {
            ended,
            ..Process::default()
        };
        let own = intervals.of_process(&process);
        let has = |metric| own.around(metric, &nothing).is_some();
        assert_eq!(
            (has(Metric::LiveBytes), has(Metric::LeftBytes)),
            (!ended, ended)
        );
        assert!(has(Metric::TotalBytes));
        // What is there against expectation is still an estimate.
        assert!(own.around(Metric::LiveBytes, &live(0, 1)).is_some());
    }
    assert!(intervals.around(Metric::LiveBytes, &nothing).is_some());
    assert_eq!(intervals.around(Metric::LeftBytes, &nothing), None);
}

/// Check that a record without unseen parts, from an older file, gets the interval of a sum without certain parts.
#[test]
fn older_files() {
    let new = live(0, 9);
    let mut old = new;
    old.errors.unseen = Unseen::default();
    old.errors.mean_bytes = 0;
    let around = |totals: &Totals| sampled().around(Metric::LiveBytes, totals);
    assert_eq!(around(&old), around(&new));
    old.errors.live_bytes = 0;
    assert_eq!(around(&old).unwrap().low, old.live_bytes);
}

/// Check that absurd numbers, as in a crafted file, give an interval that holds the value.
#[test]
fn absurd_numbers() {
    for number in [0, 1, u64::MAX] {
        for error in [0, 1, u64::MAX] {
            for unseen in [0, 1, u64::MAX] {
                for is_bytes in [false, true] {
                    let counter = Counter {
                        value: number,
                        unseen,
                        error,
                        is_bytes,
                    };
                    let errors = Errors {
                        mean_bytes: number,
                        ..Errors::default()
                    };
                    let sizes = vec![u64::MAX; 100];
                    let intervals = intervals(Mode::Sampled { mean_bytes: number }, sizes);
                    if let Some(it) = intervals.around_counter(counter, &errors) {
                        assert!(it.low <= number && it.high >= number, "{it:?}");
                    }
                }
            }
        }
    }
}
