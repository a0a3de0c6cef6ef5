//! The logarithm of a random number, in integers.
//!
//! No stage of the flow. Its error, some 2^-56, is too small to show in any number of samples.

/// Fraction bits of a logarithm.
pub(crate) const POINT: u32 = 58;

/// ln 2, with the same number of fraction bits.
const LN_2: u64 = 0x02c5_c85f_df47_3de6;

/// Numbers with 62 fraction bits.
const ONE: u64 = 1 << 62;
const THIRD: u64 = ONE / 3;
const FIFTH: u64 = ONE / 5;
const SIXTH: u64 = ONE / 6;

/// The number of intervals from 1 to 2, each with an entry in the table.
const INTERVALS: usize = 256;

/// For each interval the reciprocal of its lower end, rounded up, with 63 fraction bits, and the logarithm of
/// that end, with 58.
static TABLE: [(u64, u64); INTERVALS] = {
    let mut table = [(0, 0); INTERVALS];
    let mut index = 0;
    while index < INTERVALS {
        table[index] = (reciprocal(index as u64), ln(index as u64));
        index += 1;
    }
    table
};

/// −ln of a random number between 0 and 1, from 64 random bits, with 58 fraction bits.
///
/// The random number is the middle of one of 2^63 equal intervals, so it is never 0 and never 1.
#[inline(always)]
pub(crate) fn minus_ln(random: u64) -> u64 {
    let odd = random | 1;
    let zeros = odd.leading_zeros();
    // The number is `mantissa` · 2^(−zeros − 1), with a mantissa from 1 to 2.
    let mantissa = odd << zeros;
    let index = (mantissa >> 55) as usize & (INTERVALS - 1);
    let (reciprocal, ln) = TABLE[index];
    let rest = multiply_high(mantissa, reciprocal).saturating_sub(ONE);
    // Close to 1 the logarithm is close to 0, and rounding may make it slightly negative.
    ((u64::from(zeros) + 1) * LN_2 - ln).saturating_sub(ln_1_plus(rest) >> 4)
}

/// ln(1 + x) for an x below 2^-8, with 62 fraction bits, by its series up to the sixth power.
#[inline(always)]
fn ln_1_plus(x: u64) -> u64 {
    let fraction = x << 2;
    let series = FIFTH - multiply_high(fraction, SIXTH);
    let series = ONE / 4 - multiply_high(fraction, series);
    let series = THIRD - multiply_high(fraction, series);
    let series = ONE / 2 - multiply_high(fraction, series);
    let square = multiply_high(fraction, x);
    x - multiply_high(square << 2, series)
}

/// The upper half of a product, or up to two less. The lowest of the four products of halves is left out: by
/// its carry a compiler would recognize a multiplication of 128 bits, and emit one.
#[inline(always)]
fn multiply_high(a: u64, b: u64) -> u64 {
    const LOW: u64 = 0xffff_ffff;
    let (a_high, b_high) = (a >> 32, b >> 32);
    a_high * b_high + ((a_high * (b & LOW)) >> 32) + ((b_high * (a & LOW)) >> 32)
}

const fn reciprocal(index: u64) -> u64 {
    let end = (INTERVALS as u64 + index) as u128;
    ((INTERVALS as u128) << 63).div_ceil(end) as u64
}

/// ln of the lower end of an interval, by the series of the inverse hyperbolic tangent.
const fn ln(index: u64) -> u64 {
    // Ends are (256 + i) / 256, and ln((1 + z) / (1 − z)) = 2 (z + z³/3 + z⁵/5 + …).
    const BITS: u32 = 100;
    let (above, below) = (index as u128, (2 * INTERVALS as u64 + index) as u128);
    let mut power = (above << BITS) / below;
    let (mut sum, mut odd) = (0, 1);
    while power > 0 {
        sum += power / odd;
        power = power * above / below * above / below;
        odd += 2;
    }
    let doubled = sum << 1;
    (doubled >> (BITS - 58)) as u64
}

#[cfg(test)]
mod tests {
    use std::vec;

    use super::*;

    fn float(fixed: u64) -> f64 {
        fixed as f64 / (1_u64 << 58) as f64
    }

    /// Check that the logarithm is right at both ends of every interval, at powers of two and at the extremes.
    #[test]
    fn agrees_with_floating_point() {
        let mut numbers = vec![0, 1, 2, 3, u64::MAX, u64::MAX - 1, 1 << 63];
        for index in 0..INTERVALS as u64 {
            let start = (1 << 63) | index << 55;
            for zeros in [0, 1, 5, 40, 55] {
                numbers.extend([start >> zeros, (start | ((1 << 55) - 1)) >> zeros]);
            }
        }
        for number in numbers {
            let odd = number | 1;
            // Near 1, only the distance from 1 is exact in floating point.
            let distance = (u64::MAX - odd) as f64 + 1.0;
            let expected = if odd > 1 << 63 {
                -(-distance / 2_f64.powi(64)).ln_1p()
            } else {
                64.0 * std::f64::consts::LN_2 - (odd as f64).ln()
            };
            let error = (float(minus_ln(number)) - expected).abs();
            assert!(error < 2e-14, "{number:#x}: {error:e}");
        }
    }

    /// Check that the logarithm is monotonic across the seams between intervals, and never underflows.
    #[test]
    fn is_monotonic_across_seams() {
        for zeros in 0..50 {
            for index in 1..INTERVALS as u64 {
                let seam = ((1 << 63) | index << 55) >> zeros;
                let (below, above) = (minus_ln(seam - 2), minus_ln(seam + 2));
                assert!(below + 32 >= above, "{seam:#x}: {below} {above}");
                assert!(below - above.min(below) < 1 << 58);
            }
        }
        assert!(minus_ln(u64::MAX) < 16, "the smallest is next to zero");
    }

    /// Check that the mean of −ln over evenly spread numbers is 1, which it is not for a biased logarithm.
    #[test]
    fn has_mean_one() {
        const STEPS: u64 = 1 << 20;
        let sum: f64 = (0..STEPS)
            .map(|step| float(minus_ln((step << 44) | 1 << 43)))
            .sum();
        // The integral over a step differs from its middle by at most 1/24 · h · Σ 1/k².
        let error = sum / STEPS as f64 - 1.0;
        assert!(error.abs() < 1e-6, "{error:e}");
    }
}
