//! Tests of the gaps between samples: they are exponential, and have the right mean.

use heaptrace_common::sampling::exponential;

use crate::random::Random;

/// A function that draws a distance, such as [`exponential`].
pub(crate) type Draw = fn(u64, u64) -> (u64, u64);

const MEANS: [u64; 6] = [16, 256, 4 << 10, 64 << 10, 512 << 10, 16 << 20];

/// The limit of Anderson and Darling's statistic, for a fully known distribution. One of a thousand true samples exceeds it.
const LIMIT: f64 = 6.0;

/// The fault of a function that draws distances, if one is found.
pub(crate) fn fault(draw: Draw) -> Option<String> {
    const DRAWS: usize = 200_000;
    for mean in MEANS {
        let mut random = Random::new(mean);
        let mut gaps: Vec<f64> = (0..DRAWS)
            .map(|_| {
                let (whole, fraction) = draw(mean, random.bits());
                (whole as f64 + fraction as f64 / 2_f64.powi(64)) / mean as f64
            })
            .collect();
        let off = (gaps.iter().sum::<f64>() / DRAWS as f64 - 1.0) * (DRAWS as f64).sqrt();
        if off.abs() > 6.0 {
            return Some(format!(
                "mean of gaps: {off:.1} standard errors off at {mean}"
            ));
        }
        gaps.sort_by(f64::total_cmp);
        let statistic = anderson_darling(&gaps);
        if statistic > LIMIT {
            return Some(format!("Anderson-Darling: {statistic:.1} at {mean}"));
        }
    }
    None
}

/// The statistic of sorted values, compared with an exponential distribution of mean 1.
fn anderson_darling(sorted: &[f64]) -> f64 {
    let n = sorted.len() as f64;
    let pairs = sorted.iter().zip(sorted.iter().rev());
    let sum: f64 = (0..)
        .zip(pairs)
        .map(|(index, (low, high))| {
            // ln F(low) + ln(1 − F(high))
            f64::from(2 * index + 1) * ((-(-low).exp_m1()).max(f64::MIN_POSITIVE).ln() - high)
        })
        .sum();
    -n - sum / n
}

/// Check that gaps of every mean are exponential (Anderson and Darling) and of that mean within six
/// standard errors.
#[test]
fn gaps_are_exponential() {
    assert_eq!(fault(exponential), None);
}

/// Check that both checks can fail: that of the mean, and that of the shape.
#[test]
fn the_statistic_can_fail() {
    let uniform: Draw = |mean, bits| (bits % (2 * mean), bits);
    let found = fault(uniform).unwrap();
    assert!(found.starts_with("Anderson-Darling"), "{found}");
    let long: Draw = |mean, bits| exponential(mean + mean.div_ceil(50), bits);
    let found = fault(long).unwrap();
    assert!(found.starts_with("mean of gaps"), "{found}");
}
