//! Poisson sampling over bytes: which allocations are taken, and the gaps between them.
//!
//! No stage of the flow: the kernel program decides by it, and the host tests it with the same code.
//! Integers only, and no multiplication wider than 64 bits, which BPF has none of. It knows nothing of
//! weights: those are a matter of floating point, of whoever adds up.
//!
//! Points lie on the axis of requested bytes at random, one in `mean` bytes. An allocation is taken
//! if a point lies in its bytes, which has the probability p = 1 − exp(−span / mean), whatever was
//! taken before: so it stands for 1/p allocations of its kind. The distance from one point to the
//! next is exponential. What is left of it when an allocation has gone by is exponential again, and
//! that is why a countdown does, one for each CPU, which every allocation there makes smaller.

use crate::logarithm::{POINT, minus_ln};

/// The largest mean.
pub const MAX_MEAN: u64 = 1 << 40;

/// The most bytes that a call is taken for: more than the largest block there can be.
pub const MAX_SPAN: u64 = 1 << 48;

/// The bytes that decide about a call. One that asks for none is taken as if it asked for one, or it
/// could never be seen.
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

/// What a decision needs of the CPU that it is made on.
pub trait Cpu {
    /// 64 random bits.
    fn random(&mut self) -> u64;
    /// The mean for gaps that begin now.
    fn mean(&mut self) -> u64;
    /// By which power of two the mean of the calling process is larger.
    fn shift(&mut self) -> u32;
    /// Takes bytes off the countdown, at once with reading what it was before.
    fn count_down(&mut self, span: u64) -> i64;
    /// The mean that the countdown was begun with.
    fn begun_with(&mut self) -> u64;
    /// Begins the countdown anew.
    fn begin(&mut self, mean: u64, gap: u64);
}

/// Decides about a call: the mean that it is taken under, `None` if it is not.
#[inline(always)]
pub fn decide(cpu: &mut impl Cpu, size: u64) -> Option<u64> {
    let before = meet(cpu, size)?;
    settle(cpu, size, before)
}

/// What [`meet`] says where every call is taken. No countdown is that long.
const EVERY: i64 = i64::MAX;

/// The first part of the decision, which is the last one for almost all: `None` where a call is not taken, else what
/// the rest has to know, which must follow.
#[inline(always)]
pub fn meet(cpu: &mut impl Cpu, size: u64) -> Option<i64> {
    if cpu.mean() <= 1 {
        return Some(EVERY);
    }
    let span = span(size);
    let before = cpu.count_down(span);
    (before <= span as i64).then_some(before)
}

/// The rest of the decision.
///
/// Two calls may be decided about on one CPU at once, where a program can be preempted. Nothing gets
/// lost and nothing is biased by that: who takes the countdown to zero or below, and nobody else,
/// begins it anew; whoever comes in between finds no countdown, and draws for himself alone.
#[inline(always)]
pub fn settle(cpu: &mut impl Cpu, size: u64, before: i64) -> Option<u64> {
    let mean = cpu.mean();
    if mean <= 1 || before == EVERY {
        return Some(1);
    }
    let span = span(size);
    if before <= 0 {
        let mean = shifted(mean, cpu.shift());
        return (gap(mean, cpu.random()) <= span).then_some(mean);
    }
    let begun_with = cpu.begun_with();
    let next = gap(mean, cpu.random());
    cpu.begin(mean, next);
    thin(cpu, begun_with, span - before as u64)
}

/// Keeps one point in 2^shift, where the process has a shift: the points that are left have the
/// mean shifted. The first one lies in the byte before the last `rest` bytes of the call. If it is
/// not kept, another one may lie behind it.
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
    // Where in its byte it lies: the whole and the fraction of an exponential are independent.
    let (_, at) = exponential(mean, cpu.random());
    let (whole, fraction) = exponential(thinned, cpu.random());
    let is_inside = whole < rest || whole == rest && at.checked_add(fraction).is_some();
    is_inside.then_some(thinned)
}

/// A mean, made larger by a power of two as far as it may be.
#[inline(always)]
pub fn shifted(mean: u64, shift: u32) -> u64 {
    let room = mean
        .leading_zeros()
        .saturating_sub(MAX_MEAN.leading_zeros() + 1);
    let shift = if shift > room { room } else { shift };
    mean << (shift & 63)
}

/// Bytes up to and with the one that the next point lies in.
#[inline(always)]
pub fn gap(mean: u64, random: u64) -> u64 {
    exponential(mean, random).0 + 1
}

/// A random distance of this mean, in whole bytes and in parts of 2^64 of a byte.
#[inline(always)]
pub fn exponential(mean: u64, random: u64) -> (u64, u64) {
    let mean = if mean > MAX_MEAN { MAX_MEAN } else { mean };
    let minus_ln = minus_ln(random);
    // What is before the point of the product, from its lower end up. Nothing is more than 64 bits,
    // and no compiler takes it for what it is and makes a wider multiplication of it.
    let part = |from: u32, bits: u32| mean * (minus_ln >> from & ((1 << bits) - 1));
    let whole = (part(0, 20) >> 20) + part(20, 20);
    let whole = (whole >> 20) + part(40, 18);
    let whole = (whole >> 18) + part(POINT, 6);
    (whole, minus_ln.wrapping_mul(mean) << (64 - POINT))
}
