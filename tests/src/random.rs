//! Pseudo-random numbers, the same for the same seed on every machine.
//!
//! Part of the harness; the only generator of the end-to-end tests.

/// A generator (splitmix64) with its state.
pub struct Random(pub u64);

impl Random {
    /// The next number, of all 64-bit numbers.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next number below a bound; 0 if the bound is 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end.max(1) as u64) as usize
    }

    /// True once in so many times, on average.
    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// The next byte: a third of them any, a third small, a third at the edges of the range.
    pub fn byte(&mut self) -> u8 {
        match self.below(3) {
            0 => self.number() as u8,
            1 => self.number() as u8 % 20,
            _ => [0, 1, 0x7f, 0x80, 0xff][self.below(5)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    /// Check that the first numbers of seed 0 are those of the published generator.
    #[test]
    fn numbers_are_those_of_splitmix64() {
        let mut random = Random(0);
        assert_eq!(random.number(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.number(), 0x6e78_9e6a_a1b9_65f4);
    }
}
