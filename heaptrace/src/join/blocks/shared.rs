//! Values that many blocks share, stored once: the mean of sampling, the number of pauses of the process, the days in which they
//! were allocated, and whether they replaced others.
//!
//! Stage: join. At any time, few sets of values are in use; over a long run, any number of them. So
//! the slots of sets without blocks are used again.

use crate::join::keyed_hash::HashMap;

/// The fewest new sets between two searches for sets without blocks.
const MIN_NEW: usize = 64;

/// The values that blocks share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct SharedValues {
    pub(super) mean: u64,
    pub(super) pauses: u32,
    /// The upper bits of the time.
    pub(super) epoch: u16,
    pub(super) is_reallocated: bool,
    pub(super) mark: u32,
}

/// The values of a block without a set, which no table has.
const UNKNOWN: SharedValues = SharedValues {
    mean: 1,
    pauses: 0,
    epoch: 0,
    is_reallocated: false,
    mark: 0,
};

/// The shared values of a process's blocks, by index.
#[derive(Debug, Default)]
pub(super) struct SharedTable {
    entries: Vec<Entry>,
    by_value: HashMap<SharedValues, u16>,
    vacant: Vec<u16>,
    /// New sets that may still be added before the next search for sets without blocks.
    until_search: usize,
    /// The index of the last request.
    last: u16,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    value: SharedValues,
    blocks: u32,
}

impl SharedTable {
    /// The index of a set, for one more block; none if there are too many sets.
    pub(super) fn index(&mut self, value: SharedValues) -> Option<u16> {
        let is_it = |entry: &&mut Entry| entry.value == value;
        let last = self.entries.get_mut(usize::from(self.last));
        if let Some(entry) = last.filter(is_it) {
            entry.blocks = entry.blocks.checked_add(1)?;
            return Some(self.last);
        }
        let index = match self.by_value.get(&value) {
            Some(index) => *index,
            None => self.add(value)?,
        };
        let entry = self.entries.get_mut(usize::from(index))?;
        entry.blocks = entry.blocks.checked_add(1)?;
        self.last = index;
        Some(index)
    }

    /// The set of an index, which has one block less now.
    pub(super) fn release(&mut self, index: u16) -> SharedValues {
        let Some(entry) = self.entries.get_mut(usize::from(index)) else {
            return UNKNOWN;
        };
        entry.blocks = entry.blocks.saturating_sub(1);
        entry.value
    }

    /// The set of an index.
    pub(super) fn get(&self, index: u16) -> SharedValues {
        let entry = self.entries.get(usize::from(index));
        entry.map_or(UNKNOWN, |entry| entry.value)
    }

    fn add(&mut self, value: SharedValues) -> Option<u16> {
        if self.vacant.is_empty() {
            match self.until_search.checked_sub(1) {
                Some(left) => self.until_search = left,
                None => self.find_vacant(),
            }
        }
        let entry = Entry { value, blocks: 0 };
        let index = match self.vacant.pop() {
            Some(index) => {
                *self.entries.get_mut(usize::from(index))? = entry;
                index
            }
            None => {
                let index = u16::try_from(self.entries.len()).ok()?;
                self.entries.push(entry);
                index
            }
        };
        self.by_value.insert(value, index);
        Some(index)
    }

    /// Finds the sets without blocks.
    fn find_vacant(&mut self) {
        for (index, entry) in (0..=u16::MAX).zip(&self.entries) {
            if entry.blocks == 0 {
                self.by_value.remove(&entry.value);
                self.vacant.push(index);
            }
        }
        let used = self.entries.len() - self.vacant.len();
        // So searches stay cheap, also if all indices are in use.
        self.until_search = used.max(MIN_NEW);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a set keeps its index while it has a block, that sets without blocks make room, and that
    /// there are never more sets than indices.
    #[test]
    fn slots_are_used_again() {
        let of = |mean, pauses| SharedValues {
            mean,
            pauses,
            mark: pauses / 7,
            ..SharedValues::default()
        };
        let mut shared = SharedTable::default();
        let mut kept = Vec::new();
        for pauses in 0..200_000 {
            let index = shared.index(of(1, pauses)).unwrap();
            assert_eq!(shared.index(of(1, pauses)), Some(index));
            assert_eq!(shared.release(index), of(1, pauses));
            if pauses % 10 == 0 {
                kept.push((index, pauses));
            } else {
                shared.release(index);
            }
        }
        let entries = shared.entries.len();
        assert!(entries < 3 * kept.len(), "{entries}");
        for (index, pauses) in kept.drain(..) {
            assert_eq!(shared.index(of(1, pauses)), Some(index));
            shared.release(index);
            shared.release(index);
        }
        let pauses = 0..100_000;
        let added = pauses.filter(|pauses| shared.index(of(2, *pauses)).is_some());
        assert_eq!(added.count(), 1 << 16);
        // A set without blocks makes room for one other set, though not at once.
        shared.release(7);
        let pauses = 0..200_000;
        let added = pauses.filter(|pauses| shared.index(of(3, *pauses)).is_some());
        assert_eq!(added.count(), 1);
    }
}
