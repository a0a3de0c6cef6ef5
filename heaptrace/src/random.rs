//! Pseudo-random numbers for tests, the same for the same seed.
//!
//! Base: the tests of every stage may use it.

/// A generator (splitmix64) with its state.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// The next number, of all 64-bit numbers.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next number below a bound.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// A function that returns the next number below a bound.
pub(crate) fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut random = Random(seed);
    move |below| random.next() % below
}
