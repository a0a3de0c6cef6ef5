//! Poisson sampling over bytes: which allocations are sampled, and the gaps between samples.
//!
//! No stage of the flow: the kernel program decides with this code, and the host tests the same code. It uses
//! integers only, and no multiplication wider than 64 bits, which BPF does not have. It must not know about
//! weights: the join stage computes them in floating point.
//!
//! Points lie at random on the axis of requested bytes, one in `mean` bytes on average. An allocation is
//! sampled if a point lies in its bytes. The probability of that is p = 1 − exp(−span / mean), independent of
//! earlier samples, so a sample stands for 1/p allocations of its kind. The distance between two points is
//! exponential. The rest of a distance, after an allocation has passed, is exponential again. So one
//! countdown per CPU suffices: each allocation there lowers it.

use crate::logarithm::{POINT, minus_ln};

/// Maximum mean, in bytes.
pub const MAX_MEAN: u64 = 1 << 40;

/// Maximum bytes that a call counts for: more than the largest possible block.
pub const MAX_SPAN: u64 = 1 << 48;

/// The bytes that a call counts for. A call for 0 bytes counts for one byte; otherwise it could never be
/// sampled.
#[inline(always)]
pub const fn span(size: u64) -> u64 {
    if size == 0 {
        1
    } else if size > MAX_SPAN {
        MAX_SPAN
    } else {
        size
    }
}

/// The state of a CPU that a decision uses.
pub trait Cpu {
    /// 64 random bits.
    fn random(&mut self) -> u64;
    /// The mean of gaps that start now.
    fn mean(&mut self) -> u64;
    /// The power of two by which the mean of the calling process is larger.
    fn shift(&mut self) -> u32;
    /// Subtracts bytes from the countdown, and returns its old value; atomic.
    fn subtract(&mut self, span: u64) -> i64;
    /// The mean that the countdown started with.
    fn mean_at_start(&mut self) -> u64;
    /// Starts a new countdown.
    fn restart(&mut self, mean: u64, gap: u64);
}

/// Decides about a call: the mean that it is sampled under, `None` if it is not sampled.
#[inline(always)]
pub fn decide(cpu: &mut impl Cpu, size: u64) -> Option<u64> {
    let before = count_down(cpu, size)?;
    draw(cpu, size, before)
}

/// The value of [`count_down`] if every call is sampled. No countdown has this value.
const EVERY: i64 = i64::MAX;

/// The first part of a decision: `None` if the call is not sampled, as for almost all calls. Otherwise the
/// countdown before the call, which the caller must pass to [`draw`].
#[inline(always)]
pub fn count_down(cpu: &mut impl Cpu, size: u64) -> Option<i64> {
    if cpu.mean() <= 1 {
        return Some(EVERY);
    }
    let span = span(size);
    let before = cpu.subtract(span);
    (before <= span as i64).then_some(before)
}

/// The second part of a decision.
///
/// If programs can be preempted, two decisions may overlap on one CPU. That loses and biases nothing: only
/// the call that takes the countdown to zero or below restarts it. A call that comes in between finds no
/// countdown, and draws for itself alone.
#[inline(always)]
pub fn draw(cpu: &mut impl Cpu, size: u64, before: i64) -> Option<u64> {
    let mean = cpu.mean();
    if mean <= 1 || before == EVERY {
        return Some(1);
    }
    let span = span(size);
    if before <= 0 {
        let mean = shifted(mean, cpu.shift());
        return (gap(mean, cpu.random()) <= span).then_some(mean);
    }
    let mean_at_start = cpu.mean_at_start();
    let next = gap(mean, cpu.random());
    cpu.restart(mean, next);
    thin(cpu, mean_at_start, span - before as u64)
}

/// Keeps one point in 2^shift if the process has a shift: the remaining points have the shifted mean. The
/// first point lies in the byte before the last `rest` bytes of the call. If it is not kept, another point
/// may lie after it.
#[inline(always)]
fn thin(cpu: &mut impl Cpu, mean: u64, rest: u64) -> Option<u64> {
    let shift = cpu.shift();
    let thinned = shifted(mean, shift);
    if thinned == mean {
        return Some(mean);
    }
    let among = thinned.trailing_zeros() - mean.trailing_zeros();
    if cpu.random() & ((1 << among) - 1) == 0 {
        return Some(thinned);
    }
    // The position of the point in its byte: whole part and fraction of an exponential are independent.
    let (_, at) = exponential(mean, cpu.random());
    let (whole, fraction) = exponential(thinned, cpu.random());
    let is_inside = whole < rest || whole == rest && at.checked_add(fraction).is_some();
    is_inside.then_some(thinned)
}

/// How many calls of this size a sampled one stands for, rounded. Only statistics of sizes use it.
#[inline(always)]
pub const fn calls(mean: u64, size: u64) -> u64 {
    let span = span(size);
    let calls = (mean + span / 2) / span;
    if calls == 0 { 1 } else { calls }
}

/// A mean multiplied by a power of two, limited to [`MAX_MEAN`].
#[inline(always)]
pub fn shifted(mean: u64, shift: u32) -> u64 {
    let room = mean
        .leading_zeros()
        .saturating_sub(MAX_MEAN.leading_zeros() + 1);
    let shift = if shift > room { room } else { shift };
    mean << (shift & 63)
}

/// Bytes up to the next point, including the byte that it lies in.
#[inline(always)]
pub fn gap(mean: u64, random: u64) -> u64 {
    exponential(mean, random).0 + 1
}

/// A random distance with this mean: whole bytes, and a fraction in units of 2^-64 byte.
#[inline(always)]
pub fn exponential(mean: u64, random: u64) -> (u64, u64) {
    let mean = if mean > MAX_MEAN { MAX_MEAN } else { mean };
    let minus_ln = minus_ln(random);
    // The integer part of the product, from its lower end up. Nothing is wider than 64 bits, and written this
    // way no compiler replaces it by a wider multiplication.
    let part = |from: u32, bits: u32| mean * (minus_ln >> from & ((1 << bits) - 1));
    let whole = (part(0, 20) >> 20) + part(20, 20);
    let whole = (whole >> 20) + part(40, 18);
    let whole = (whole >> 18) + part(POINT, 6);
    (whole, minus_ln.wrapping_mul(mean) << (64 - POINT))
}
