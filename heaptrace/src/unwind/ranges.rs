//! Allocates ranges of an array.
//!
//! Stage: unwind. Must not know what is in the array.

use std::collections::BTreeMap;

/// A first-fit allocator for ranges of an array.
#[derive(Debug)]
pub(super) struct Ranges {
    /// Sizes of free ranges by their first element. Adjacent free ranges are always merged.
    free: BTreeMap<u32, u32>,
    size: u32,
    allocated: u32,
}

impl Ranges {
    /// An array with all elements free.
    pub(super) fn new(size: u32) -> Self {
        let free = if size == 0 {
            BTreeMap::new()
        } else {
            BTreeMap::from([(0, size)])
        };
        Self {
            free,
            size,
            allocated: 0,
        }
    }

    /// The number of elements of the array.
    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// The number of allocated elements.
    pub(super) fn allocated(&self) -> u32 {
        self.allocated
    }

    /// Allocates adjacent elements, if there are enough; returns the first.
    pub(super) fn allocate(&mut self, size: u32) -> Option<u32> {
        if size == 0 {
            return Some(0);
        }
        if size > self.size - self.allocated {
            return None;
        }
        let fits = self.free.iter().find(|(_, free)| **free >= size);
        let (first, free) = fits.map(|(first, free)| (*first, *free))?;
        self.free.remove(&first);
        if free > size {
            self.free.insert(first + size, free - size);
        }
        self.allocated += size;
        Some(first)
    }

    /// Frees an allocated range.
    pub(super) fn release(&mut self, first: u32, size: u32) {
        if size == 0 {
            return;
        }
        self.allocated = self.allocated.saturating_sub(size);
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

    /// Check that freed ranges merge to one range, in whatever order they are freed.
    #[test]
    fn freed_ranges_merge() {
        for order in [[0, 1, 2, 3], [3, 1, 0, 2], [2, 0, 3, 1]] {
            let mut ranges = Ranges::new(100);
            let allocated = [10, 20, 30, 40].map(|size| (ranges.allocate(size).unwrap(), size));
            assert_eq!(allocated, [(0, 10), (10, 20), (30, 30), (60, 40)]);
            assert_eq!((ranges.allocate(1), ranges.allocated()), (None, 100));
            for index in order {
                let (first, size) = allocated[index];
                ranges.release(first, size);
            }
            assert_eq!(ranges.free, BTreeMap::from([(0, 100)]));
            assert_eq!(ranges.allocated(), 0);
        }
    }

    /// Check that a freed range is reused, and only for allocations that fit into it.
    #[test]
    fn freed_ranges_are_reused() {
        let mut ranges = Ranges::new(100);
        let first = ranges.allocate(10).unwrap();
        assert_eq!(ranges.allocate(50), Some(10));
        ranges.release(first, 10);
        assert_eq!(ranges.allocate(11), Some(60));
        assert_eq!(ranges.allocate(4), Some(0));
        assert_eq!(ranges.allocate(6), Some(4));
        assert_eq!(ranges.allocate(0), Some(0));
        assert_eq!(Ranges::new(0).allocate(1), None);
    }
}
