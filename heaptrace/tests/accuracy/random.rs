//! Pseudo-random numbers, the same in every run.

/// Steele, Lea and Flood's SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// A stream of numbers, the same in every run unless `HEAPTRACE_ACCURACY_SEED` is set.
    pub(crate) fn new(stream: u64) -> Self {
        let seed = std::env::var("HEAPTRACE_ACCURACY_SEED");
        let seed: u64 = seed.ok().map_or(0, |seed| seed.parse().unwrap());
        let mut random = Self(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        random.bits();
        random
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 up to, but not including, 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        (self.unit() * end as f64) as u64
    }

    /// A size with an evenly distributed logarithm.
    pub(crate) fn size(&mut self, smallest: u64, largest: u64) -> u64 {
        let ratio = largest as f64 / smallest as f64;
        (smallest as f64 * ratio.powf(self.unit())).round() as u64
    }
}
