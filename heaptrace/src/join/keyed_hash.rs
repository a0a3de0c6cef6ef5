//! Hashes with a secret key, for tables that are asked with every event.
//!
//! Stage: join. What is hashed comes from traced processes, which must not be able to choose what collides. The standard
//! library's hash sees to that for any use, and takes longer than all else that is done for an event.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A table with such a hash.
pub(super) type HashMap<K, V> = std::collections::HashMap<K, V, KeyedHash>;

/// A key.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyedHash {
    seed: u64,
    factor: u64,
}

/// A hash that is being made.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyedHasher {
    state: u64,
    factor: u64,
}

/// Any number that is no simple fraction of 2⁶⁴: this one is the golden ratio.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Both halves of a product, one over the other.
fn folded(number: u64, factor: u64) -> u64 {
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
    /// Of a number alone.
    pub(super) fn of(self, number: u64) -> u64 {
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
        // Once more: of a number alone, too few bits may depend on the upper ones.
        folded(self.state, ODD)
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        words
            .iter()
            .for_each(|word| self.write_u64(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        // The number of bytes tells those that are there from those that are filled in.
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
        self.state = folded(self.state ^ number, self.factor);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Check that hashes of what differs little share neither their upper bits nor their lower ones more often than
    /// chance has it, and that another key makes others.
    #[test]
    fn spreads() {
        let (one, other) = (KeyedHash::default(), KeyedHash::default());
        for shift in [0, 3, 12, 48].into_iter().flat_map(|it| [it; 20]) {
            let key = KeyedHash::default();
            let hashes = || (0..4096_u64).map(|it| key.of(it << shift));
            let lower: HashSet<_> = hashes().map(|hash| hash & 0xfff).collect();
            let upper: HashSet<_> = hashes().map(|hash| hash >> 52).collect();
            // Of so many places, chance leaves about 1,507 empty.
            for places in [lower, upper] {
                assert!(places.len() > 2000, "{} for {shift}", places.len());
            }
        }
        let differ = (0..100_u64).filter(|it| one.of(*it) != other.of(*it));
        assert!(differ.count() > 90);
        assert_ne!(one.hash_one([0_u8; 3]), one.hash_one([0_u8; 4]));
        assert_ne!(one.hash_one("ab"), one.hash_one("ac"));
    }
}
