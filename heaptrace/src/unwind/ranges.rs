//! Which parts of an array are taken.
//!
//! Stage: unwind. It knows numbers only.

use std::collections::BTreeMap;

/// Free ranges of an array, found first fit.
#[derive(Debug)]
pub(super) struct Ranges {
    /// Sizes of free ranges by where they begin; no two touch each other.
    free: BTreeMap<u32, u32>,
    size: u32,
    taken: u32,
}

impl Ranges {
    /// An array of which nothing is taken.
    pub(super) fn new(size: u32) -> Self {
        let free = if size == 0 {
            BTreeMap::new()
        } else {
            BTreeMap::from([(0, size)])
        };
        Self {
            free,
            size,
            taken: 0,
        }
    }

    /// All elements.
    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// Elements that are taken.
    pub(super) fn taken(&self) -> u32 {
        self.taken
    }

    /// Takes neighbouring elements, if there are as many; returns the first.
    pub(super) fn take(&mut self, size: u32) -> Option<u32> {
        if size == 0 {
            return Some(0);
        }
        if size > self.size - self.taken {
            return None;
        }
        let fits = self.free.iter().find(|(_, free)| **free >= size);
        let (first, free) = fits.map(|(first, free)| (*first, *free))?;
        self.free.remove(&first);
        if free > size {
            self.free.insert(first + size, free - size);
        }
        self.taken += size;
        Some(first)
    }

    /// Gives back what was taken.
    pub(super) fn give(&mut self, first: u32, size: u32) {
        if size == 0 {
            return;
        }
        self.taken = self.taken.saturating_sub(size);
        let (mut first, mut size) = (first, size);
        if let Some((before, length)) = self.free.range(..first).next_back()
            && before + length == first
        {
            (first, size) = (*before, length + size);
        }
        if let Some(behind) = self.free.remove(&first.saturating_add(size)) {
            size += behind;
        }
        self.free.insert(first, size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that ranges given back join, in whatever order, until all is one again.
    #[test]
    fn joins_what_is_given_back() {
        for order in [[0, 1, 2, 3], [3, 1, 0, 2], [2, 0, 3, 1]] {
            let mut ranges = Ranges::new(100);
            let taken = [10, 20, 30, 40].map(|size| (ranges.take(size).unwrap(), size));
            assert_eq!(taken, [(0, 10), (10, 20), (30, 30), (60, 40)]);
            assert_eq!((ranges.take(1), ranges.taken()), (None, 100));
            for index in order {
                let (first, size) = taken[index];
                ranges.give(first, size);
            }
            assert_eq!(ranges.free, BTreeMap::from([(0, 100)]));
            assert_eq!(ranges.taken(), 0);
        }
    }

    /// Check that a hole is used again, and only by what fits into it.
    #[test]
    fn fills_holes() {
        let mut ranges = Ranges::new(100);
        let first = ranges.take(10).unwrap();
        assert_eq!(ranges.take(50), Some(10));
        ranges.give(first, 10);
        assert_eq!(ranges.take(11), Some(60));
        assert_eq!(ranges.take(4), Some(0));
        assert_eq!(ranges.take(6), Some(4));
        assert_eq!(ranges.take(0), Some(0));
        assert_eq!(Ranges::new(0).take(1), None);
    }
}
