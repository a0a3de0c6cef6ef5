//! Random numbers for tests, the same in every run.
//!
//! Base: any stage's tests may use it.

/// A source of numbers below a bound each.
pub(crate) fn numbers(mut seed: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    }
}
