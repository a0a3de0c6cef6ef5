//! The mappings of one process, by address, each with the owner that its caller gave it.
//!
//! Stage: join. A mapping can be unmapped in parts and in any order, and one call can unmap parts of several
//! mappings. So mappings are kept by address, not by call. A call unmaps what was there when it began: by the
//! time its return is seen, another thread may have mapped the addresses again. Knows nothing of stacks and
//! counters.

use std::collections::{BTreeMap, HashMap, VecDeque};

/// Most replaced parts that are remembered.
const MAX_REPLACED: usize = 64;

/// The mappings of a process.
#[derive(Debug)]
pub(super) struct Regions<T> {
    /// By their first addresses. No two overlap.
    parts: BTreeMap<u64, Part>,
    mappings: HashMap<u64, Mapping<T>>,
    next_mapping: u64,
    /// Parts that other mappings replaced, for calls that had begun before.
    replaced: VecDeque<Replaced>,
}

/// Addresses that a mapping still has.
#[derive(Clone, Copy, Debug)]
struct Part {
    end: u64,
    mapping: u64,
}

/// A mapping, as one call made it.
#[derive(Debug)]
struct Mapping<T> {
    owner: T,
    mapped_at: u64,
    /// Bytes of it that are still mapped.
    left: u64,
}

#[derive(Debug)]
struct Replaced {
    start: u64,
    end: u64,
    mapped_at: u64,
    replaced_at: u64,
}

/// Bytes of a mapping that are not mapped any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RemovedPart<T> {
    /// The owner of the mapping.
    pub(super) owner: T,
    pub(super) bytes: u64,
    /// Whether they were the last bytes of the mapping.
    pub(super) is_last: bool,
}

impl<T> Default for Regions<T> {
    fn default() -> Self {
        Self {
            parts: BTreeMap::new(),
            mappings: HashMap::new(),
            next_mapping: 0,
            replaced: VecDeque::new(),
        }
    }
}

impl<T: Copy> Regions<T> {
    /// The number of parts.
    pub(super) fn len(&self) -> usize {
        self.parts.len()
    }

    /// The parts by address, each with the address after it and its owner.
    pub(super) fn parts(&self) -> impl Iterator<Item = (u64, u64, T)> {
        let parts = self.parts.iter();
        parts.filter_map(|(start, part)| {
            let mapping = self.mappings.get(&part.mapping)?;
            Some((*start, part.end, mapping.owner))
        })
    }

    /// Removes everything between two addresses that was mapped before a time.
    pub(super) fn unmap(&mut self, start: u64, end: u64, before: u64) -> Vec<RemovedPart<T>> {
        let mut removed = Vec::new();
        for (at, part) in self.between(start, end, before) {
            let (from, to) = (at.max(start), part.end.min(end));
            self.parts.remove(&at);
            if at < from {
                self.parts.insert(at, Part { end: from, ..part });
            }
            if to < part.end {
                self.parts.insert(to, part);
            }
            removed.extend(self.shrink(part.mapping, to - from));
        }
        removed
    }

    /// Adds a mapping. Nothing else may be between its addresses.
    pub(super) fn map(&mut self, start: u64, end: u64, mapped_at: u64, owner: T) {
        let mapping = self.next_mapping;
        self.next_mapping += 1;
        let new = Mapping {
            owner,
            mapped_at,
            left: end - start,
        };
        self.mappings.insert(mapping, new);
        self.parts.insert(start, Part { end, mapping });
    }

    /// Removes everything between two addresses, because something else was mapped there at a time.
    pub(super) fn replace(&mut self, start: u64, end: u64, time: u64) -> Vec<RemovedPart<T>> {
        for (from, part) in self.between(start, end, u64::MAX) {
            if self.replaced.len() == MAX_REPLACED {
                self.replaced.pop_front();
            }
            self.replaced.push_back(Replaced {
                start: from.max(start),
                end: part.end.min(end),
                mapped_at: self
                    .mappings
                    .get(&part.mapping)
                    .map_or(0, |it| it.mapped_at),
                replaced_at: time,
            });
        }
        self.unmap(start, end, u64::MAX)
    }

    /// Whether anything between two addresses was mapped at a time, also if it has been replaced since.
    pub(super) fn was_mapped(&self, start: u64, end: u64, time: u64) -> bool {
        !self.between(start, end, time).is_empty()
            || self.replaced.iter().any(|it| {
                let overlaps = it.start < end && start < it.end;
                overlaps && it.mapped_at < time && time < it.replaced_at
            })
    }

    /// The parts that overlap these addresses, of mappings from before a time.
    fn between(&self, start: u64, end: u64, before: u64) -> Vec<(u64, Part)> {
        if start >= end {
            return Vec::new();
        }
        let first = self.parts.range(..start).next_back();
        let first = first.filter(|(_, part)| part.end > start);
        first
            .into_iter()
            .chain(self.parts.range(start..end))
            .map(|(at, part)| (*at, *part))
            .filter(|(_, part)| {
                let mapping = self.mappings.get(&part.mapping);
                mapping.is_some_and(|mapping| mapping.mapped_at < before)
            })
            .collect()
    }

    fn shrink(&mut self, number: u64, bytes: u64) -> Option<RemovedPart<T>> {
        let mapping = self.mappings.get_mut(&number)?;
        mapping.left = mapping.left.saturating_sub(bytes);
        let (owner, is_last) = (mapping.owner, mapping.left == 0);
        if is_last {
            self.mappings.remove(&number);
        }
        Some(RemovedPart {
            owner,
            bytes,
            is_last,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::numbers;

    /// A simple model: the owner of each page, and when the page was mapped.
    #[derive(Default)]
    struct Pages {
        pages: HashMap<u64, (u32, u64)>,
    }

    impl Pages {
        fn left(&self, owner: u32) -> u64 {
            self.pages.values().filter(|page| page.0 == owner).count() as u64
        }

        fn unmap(&mut self, start: u64, end: u64, before: u64) -> HashMap<u32, u64> {
            let mut removed = HashMap::new();
            for page in start..end {
                if self.pages.get(&page).is_some_and(|it| it.1 < before)
                    && let Some((owner, _)) = self.pages.remove(&page)
                {
                    *removed.entry(owner).or_default() += 1;
                }
            }
            removed
        }
    }

    /// Check that random calls remove the same bytes as from a model of single pages: mappings over others,
    /// and parts unmapped from the middle, across several mappings, and only of those from before a time.
    #[test]
    fn equals_a_model_of_pages() {
        let mut random = numbers(7);
        for _ in 0..300 {
            let (mut regions, mut pages) = (Regions::default(), Pages::default());
            let mut last = 0;
            for time in 1..80 {
                let start = random(40);
                let end = start + random(12);
                let is_new = random(2) == 0 && start < end;
                let before = if is_new || random(3) > 0 {
                    u64::MAX
                } else {
                    time - random(time)
                };
                let was_mapped = regions.was_mapped(start, end, before);
                let removed = if is_new {
                    regions.replace(start, end, time)
                } else {
                    regions.unmap(start, end, before)
                };
                let expected = pages.unmap(start, end, before);
                if !expected.is_empty() {
                    assert!(was_mapped);
                }
                let mut sums = HashMap::<u32, u64>::new();
                for it in &removed {
                    *sums.entry(it.owner).or_default() += it.bytes;
                    assert!(it.bytes > 0);
                }
                assert_eq!(sums, expected);
                // The last part of each mapping is marked, and no other one.
                for owner in sums.keys() {
                    let is_last = |it: &&RemovedPart<u32>| it.owner == *owner && it.is_last;
                    let lasts = removed.iter().filter(is_last).count();
                    assert_eq!(lasts, usize::from(pages.left(*owner) == 0));
                }
                if is_new {
                    last += 1;
                    regions.map(start, end, time, last);
                    pages
                        .pages
                        .extend((start..end).map(|page| (page, (last, time))));
                }
                let left: u64 = regions.mappings.values().map(|it| it.left).sum();
                assert_eq!(left, pages.pages.len() as u64);
                let spans = regions.parts.iter().map(|(at, part)| part.end - at);
                assert_eq!(spans.sum::<u64>(), left);
            }
        }
    }

    /// Check that a replaced mapping counts as mapped for a call that had begun before, and for no later one.
    #[test]
    fn replaced_mappings_are_remembered() {
        let mut regions = Regions::default();
        regions.map(10, 20, 1, 'a');
        assert_eq!(regions.replace(12, 14, 5).len(), 1);
        regions.map(12, 14, 5, 'b');
        assert!(regions.was_mapped(12, 13, 3));
        assert_eq!(regions.unmap(12, 13, 3), []);
        regions.unmap(12, 14, 7);
        assert!(regions.was_mapped(12, 13, 4));
        assert!(!regions.was_mapped(12, 13, 6));
        assert!(!regions.was_mapped(20, 30, 4));
    }
}
