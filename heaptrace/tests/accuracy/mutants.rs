//! Tests with known mistakes of samplers, made on purpose: the checks must find each of them.

use heaptrace_common::sampling::exponential;

use crate::gaps::{self, Draw};
use crate::machine::Sampler;
use crate::random::Random;

/// A sample: its size and its mean.
type Sample = (u64, u64);

/// Estimates the numbers of allocations and bytes from samples.
type Weigh = fn(&[Sample]) -> (f64, f64);

fn weight((size, mean): Sample) -> f64 {
    -1.0 / (-(size as f64) / mean as f64).exp_m1()
}

fn right(samples: &[Sample]) -> (f64, f64) {
    let weights = samples.iter().map(|it| (weight(*it), it.0 as f64));
    weights.fold((0.0, 0.0), |(count, bytes), (weight, size)| {
        (count + weight, bytes + weight * size)
    })
}

/// The fault of a function that weighs samples, if one is found: for small and large blocks, with the same number of bytes of each.
fn fault(weigh: Weigh) -> Option<String> {
    const MEAN: u64 = 64 << 10;
    let mut sampler = Sampler::new(Random::new(20), MEAN, 1);
    let mut samples = Vec::new();
    let (mut allocations, mut allocated_bytes) = (0.0, 0.0);
    let (mut count_variance, mut bytes_variance) = (0.0, 0.0);
    for turn in 0..4 << 20 {
        let size = if turn % (1 << 14) == 0 { 512 << 10 } else { 32 };
        allocations += 1.0;
        allocated_bytes += size as f64;
        if let Some(mean) = sampler.decide(0, size) {
            samples.push((size, mean));
            let weight = weight((size, mean));
            let variance = weight * weight * (-(size as f64) / mean as f64).exp();
            count_variance += variance;
            bytes_variance += variance * (size * size) as f64;
        }
    }
    let (count, bytes) = weigh(&samples);
    for (what, estimate, truth, variance) in [
        ("allocations", count, allocations, count_variance),
        ("allocated bytes", bytes, allocated_bytes, bytes_variance),
    ] {
        let off = (estimate - truth) / f64::sqrt(variance);
        if off.abs() > 4.0 {
            return Some(format!("{what}: {off:.1} standard errors off"));
        }
    }
    None
}

/// Check that the right weights pass, so that the other tests fail because of their mistakes.
#[test]
fn the_right_way_passes() {
    assert_eq!(fault(right), None);
}

/// Check that weighing the sum of a site by the mean size of its samples is found.
#[test]
fn weights_summed_before_unbiasing() {
    let wrong: Weigh = |samples| {
        let bytes: u64 = samples.iter().map(|(size, _)| size).sum();
        let count = samples.len() as f64;
        let weight = weight((bytes / samples.len() as u64, samples[0].1));
        (count * weight, bytes as f64 * weight)
    };
    let found = fault(wrong).unwrap();
    assert!(found.starts_with("allocations: "), "{found}");
}

/// Check that a weight of 1 for blocks as large as the mean is found, although most of these blocks are sampled.
#[test]
fn weight_one_for_large_blocks() {
    let wrong: Weigh = |samples| {
        samples.iter().fold((0.0, 0.0), |(count, bytes), it| {
            let weight = if it.0 >= it.1 / 4 { 1.0 } else { weight(*it) };
            (count + weight, bytes + weight * it.0 as f64)
        })
    };
    let at_mean = |size: u64| {
        let sample = (size, size);
        let (count, _) = wrong(&[sample]);
        (count - weight(sample)).abs()
    };
    assert!(at_mean(1 << 16) > 0.5, "37 % are missed at the mean itself");
    let found = fault_at_mean(wrong).unwrap();
    assert!(found.starts_with("allocated bytes: "), "{found}");
    assert_eq!(fault_at_mean(right), None);
}

/// The same as [`fault`], for blocks as large as the mean.
fn fault_at_mean(weigh: Weigh) -> Option<String> {
    const MEAN: u64 = 64 << 10;
    let mut sampler = Sampler::new(Random::new(21), MEAN, 1);
    let (mut samples, mut truth, mut variance) = (Vec::new(), 0.0, 0.0);
    for _ in 0..100_000 {
        truth += MEAN as f64;
        if let Some(mean) = sampler.decide(0, MEAN) {
            samples.push((MEAN, mean));
            let weight = weight((MEAN, mean));
            variance += weight * weight * (-1_f64).exp() * (MEAN * MEAN) as f64;
        }
    }
    let off = (weigh(&samples).1 - truth) / variance.sqrt();
    (off.abs() > 4.0).then(|| format!("allocated bytes: {off:.1} standard errors off"))
}

/// Check that logarithms with a small bias are found: a hundredth too large, linear between powers of two, or of too few
/// random bits.
#[test]
fn biased_logarithms() {
    let larger: Draw = |mean, bits| exponential(mean + mean.div_ceil(50), bits);
    let linear: Draw = |mean, bits| {
        let odd = bits | 1;
        let mantissa = (odd << odd.leading_zeros()) as f64 / 2_f64.powi(63);
        let log2 = f64::from(odd.leading_zeros() + 1) - (mantissa - 1.0);
        let gap = log2 * std::f64::consts::LN_2 * mean as f64;
        (gap as u64, (gap.fract() * 2_f64.powi(64)) as u64)
    };
    let coarse: Draw = |mean, bits| exponential(mean, bits >> 60 << 60 | 1 << 59);
    for (wrong, assertion) in [
        (larger, "mean of gaps"),
        (linear, "mean of gaps"),
        (coarse, "mean of gaps"),
    ] {
        let found = gaps::fault(wrong).unwrap();
        println!("{found}");
        assert!(found.starts_with(assertion), "{found}");
    }
}
