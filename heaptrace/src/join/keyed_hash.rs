//! A fast hash with a secret key, for tables that are searched with every event.
//!
//! Stage: join. The keys of these tables come from traced processes, which must not be able to make them
//! collide. The standard library's hash prevents that, too, but takes longer than all other work for an
//! event.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A table with this hash.
pub(super) type HashMap<K, V> = std::collections::HashMap<K, V, KeyedHash>;

/// The secret key of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyedHash {
    seed: u64,
    factor: u64,
}

/// A hash under construction.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyedHasher {
    state: u64,
    factor: u64,
}

/// The golden ratio as a fraction of 2⁶⁴. Any number that is no simple fraction would do.
const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

/// The upper half of a product, combined with the lower half by exclusive or.
fn folded_product(number: u64, factor: u64) -> u64 {
    let product = u128::from(number) * u128::from(factor);
    (product >> 64) as u64 ^ product as u64
}

impl Default for KeyedHash {
    fn default() -> Self {
        let random = RandomState::new();
        Self {
            seed: random.hash_one(0),
            factor: random.hash_one(1) | 1,
        }
    }
}

impl KeyedHash {
    /// The hash of a number.
    pub(super) fn of_number(self, number: u64) -> u64 {
        let mut hasher = self.build_hasher();
        hasher.write_u64(number);
        hasher.finish()
    }
}

impl BuildHasher for KeyedHash {
    type Hasher = KeyedHasher;

    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher {
            state: self.seed,
            factor: self.factor,
        }
    }
}

impl Hasher for KeyedHasher {
    fn finish(&self) -> u64 {
        // A second round: after one number, too few bits may depend on its upper bits.
        folded_product(self.state, GOLDEN_RATIO)
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        words
            .iter()
            .for_each(|word| self.write_u64(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        // The length tells real bytes from the zeros that fill the last word.
        self.write_u64(u64::from_le_bytes(last));
        self.write_u64(bytes.len() as u64);
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    fn write_u16(&mut self, number: u16) {
        self.write_u64(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.state = folded_product(self.state ^ number, self.factor);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Check that similar numbers share the upper or lower bits of their hashes no more often than by chance,
    /// and that another key gives other hashes.
    #[test]
    fn similar_numbers_have_different_hashes() {
        let (one, other) = (KeyedHash::default(), KeyedHash::default());
        for shift in [0, 3, 12, 48].into_iter().flat_map(|it| [it; 20]) {
            let key = KeyedHash::default();
            let hashes = || (0..4096_u64).map(|it| key.of_number(it << shift));
            let lower: HashSet<_> = hashes().map(|hash| hash & 0xfff).collect();
            let upper: HashSet<_> = hashes().map(|hash| hash >> 52).collect();
            // By chance, about 1,507 of the 4,096 values are missing.
            for values in [lower, upper] {
                assert!(values.len() > 2000, "{} for {shift}", values.len());
            }
        }
        let differ = (0..100_u64).filter(|it| one.of_number(*it) != other.of_number(*it));
        assert!(differ.count() > 90);
        assert_ne!(one.hash_one([0_u8; 3]), one.hash_one([0_u8; 4]));
        assert_ne!(one.hash_one("ab"), one.hash_one("ac"));
    }
}
