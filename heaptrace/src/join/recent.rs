//! A table that keeps what was used recently.
//!
//! Stage: join. Knows nothing of what it keeps.

use std::hash::Hash;
use std::mem;

use super::keyed_hash::HashMap;

/// A table of two generations: when the younger one is full, it becomes the older one, which is dropped. Entries that are used move
/// to the younger one.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    /// The weight of the younger generation, and the most that it may have.
    weight: usize,
    most: usize,
}

impl<K: Hash + Eq + Clone, V: Clone> Recent<K, V> {
    /// An empty table, which keeps entries of twice this weight at most, and one entry.
    pub(super) fn new(most: usize) -> Self {
        Self {
            young: HashMap::default(),
            old: HashMap::default(),
            weight: 0,
            most,
        }
    }

    /// The value of a key, whose weight this function tells.
    pub(super) fn get(&mut self, key: &K, weight: impl FnOnce(&V) -> usize) -> Option<V> {
        if let Some(value) = self.young.get(key) {
            return Some(value.clone());
        }
        let value = self.old.remove(key)?;
        self.insert(key.clone(), value.clone(), weight(&value));
        Some(value)
    }

    /// Adds a value, which the table does not have, with its weight.
    pub(super) fn insert(&mut self, key: K, value: V, weight: usize) {
        if self.weight + weight > self.most {
            self.old = mem::take(&mut self.young);
            self.weight = 0;
        }
        self.weight += weight;
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that entries that are used stay, that others go, and that the table does not grow.
    #[test]
    fn used_entries_stay() {
        let mut table = Recent::new(10);
        table.insert(0, "kept", 1);
        for key in 1..100 {
            assert_eq!(table.get(&0, |_| 1), Some("kept"), "{key}");
            table.insert(key, "other", 1);
            assert!(table.young.len() + table.old.len() <= 20);
        }
        assert_eq!(table.get(&99, |_| 1), Some("other"));
        assert_eq!(table.get(&1, |_| 1), None);
        table.insert(7, "heavy", 1000);
        assert_eq!(table.get(&7, |_| 1000), Some("heavy"));
    }
}
