//! What of an address space a process has mapped by itself, and which call mapped each part.
//!
//! Stage: join. A mapping can be given back in parts, in any order, and one call can give back parts of
//! several, so this is kept by address and not by call. What a call gives back is what was there when it
//! was called: its return may be heard of after another thread has had the addresses again. Knows nothing
//! of stacks and counters.

use std::collections::{BTreeMap, HashMap, VecDeque};

/// Most parts that were replaced and are remembered.
const MAX_REPLACED: usize = 64;

/// The mappings of a process, each with what its owner wants to know of it.
#[derive(Debug)]
pub(super) struct Regions<T> {
    /// By their first addresses; no two have an address in common.
    parts: BTreeMap<u64, Part>,
    whole: HashMap<u64, Whole<T>>,
    next: u64,
    /// Parts that others took the place of, for calls that were under way then.
    replaced: VecDeque<Replaced>,
}

/// Addresses that a mapping still has.
#[derive(Clone, Copy, Debug)]
struct Part {
    end: u64,
    mapping: u64,
}

/// A mapping.
#[derive(Debug)]
struct Whole<T> {
    of: T,
    since: u64,
    /// Bytes of it that are left.
    left: u64,
}

#[derive(Debug)]
struct Replaced {
    start: u64,
    end: u64,
    since: u64,
    at: u64,
}

/// Bytes of a mapping that are mapped no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone<T> {
    /// What was said of the mapping.
    pub(super) of: T,
    /// How many.
    pub(super) bytes: u64,
    /// Whether they were the last of it.
    pub(super) is_last: bool,
}

impl<T> Default for Regions<T> {
    fn default() -> Self {
        Self {
            parts: BTreeMap::new(),
            whole: HashMap::new(),
            next: 0,
            replaced: VecDeque::new(),
        }
    }
}

impl<T: Copy> Regions<T> {
    /// How many parts there are.
    pub(super) fn len(&self) -> usize {
        self.parts.len()
    }

    /// Takes out what was mapped before a time between two addresses.
    pub(super) fn take(&mut self, start: u64, end: u64, before: u64) -> Vec<Gone<T>> {
        let mut gone = Vec::new();
        for (at, part) in self.between(start, end, before) {
            let (from, to) = (at.max(start), part.end.min(end));
            self.parts.remove(&at);
            if at < from {
                self.parts.insert(at, Part { end: from, ..part });
            }
            if to < part.end {
                self.parts.insert(to, part);
            }
            gone.extend(self.shrink(part.mapping, to - from));
        }
        gone
    }

    /// Notes a mapping that was made at a time. Nothing may be left between its addresses.
    pub(super) fn put(&mut self, start: u64, end: u64, since: u64, of: T) {
        let mapping = self.next;
        self.next += 1;
        let left = end - start;
        self.whole.insert(mapping, Whole { of, since, left });
        self.parts.insert(start, Part { end, mapping });
    }

    /// Takes out all that is between two addresses, because something else is mapped there since a time.
    pub(super) fn replace(&mut self, start: u64, end: u64, at: u64) -> Vec<Gone<T>> {
        for (from, part) in self.between(start, end, u64::MAX) {
            if self.replaced.len() == MAX_REPLACED {
                self.replaced.pop_front();
            }
            self.replaced.push_back(Replaced {
                start: from.max(start),
                end: part.end.min(end),
                since: self.whole.get(&part.mapping).map_or(0, |it| it.since),
                at,
            });
        }
        self.take(start, end, u64::MAX)
    }

    /// Whether anything between two addresses was mapped at a time; also if it was replaced since.
    pub(super) fn knew(&self, start: u64, end: u64, time: u64) -> bool {
        !self.between(start, end, time).is_empty()
            || self
                .replaced
                .iter()
                .any(|it| it.start < end && start < it.end && it.since < time && time < it.at)
    }

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
                let whole = self.whole.get(&part.mapping);
                whole.is_some_and(|whole| whole.since < before)
            })
            .collect()
    }

    fn shrink(&mut self, mapping: u64, bytes: u64) -> Option<Gone<T>> {
        let whole = self.whole.get_mut(&mapping)?;
        whole.left = whole.left.saturating_sub(bytes);
        let (of, is_last) = (whole.of, whole.left == 0);
        if is_last {
            self.whole.remove(&mapping);
        }
        Some(Gone { of, bytes, is_last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::numbers;

    /// What a page belongs to, one by one: the plain way.
    #[derive(Default)]
    struct Pages {
        pages: HashMap<u64, (u32, u64)>,
    }

    impl Pages {
        fn left(&self, of: u32) -> u64 {
            self.pages.values().filter(|page| page.0 == of).count() as u64
        }

        fn take(&mut self, start: u64, end: u64, before: u64) -> HashMap<u32, u64> {
            let mut gone = HashMap::new();
            for page in start..end {
                if self.pages.get(&page).is_some_and(|it| it.1 < before)
                    && let Some((of, _)) = self.pages.remove(&page)
                {
                    *gone.entry(of).or_default() += 1;
                }
            }
            gone
        }
    }

    /// Check against a model that keeps every page by itself, over random calls: mappings over others,
    /// and parts taken out of the middle, across several, and only of what was there before a time.
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
                let knew = regions.knew(start, end, before);
                let gone = if is_new {
                    regions.replace(start, end, time)
                } else {
                    regions.take(start, end, before)
                };
                let expected = pages.take(start, end, before);
                if !expected.is_empty() {
                    assert!(knew);
                }
                let mut sums = HashMap::<u32, u64>::new();
                for it in &gone {
                    *sums.entry(it.of).or_default() += it.bytes;
                    assert!(it.bytes > 0);
                }
                assert_eq!(sums, expected);
                // The last part of each that is all gone says so, and no other one does.
                for of in sums.keys() {
                    let lasts = gone.iter().filter(|it| it.of == *of && it.is_last).count();
                    assert_eq!(lasts, usize::from(pages.left(*of) == 0));
                }
                if is_new {
                    last += 1;
                    regions.put(start, end, time, last);
                    pages
                        .pages
                        .extend((start..end).map(|page| (page, (last, time))));
                }
                let left: u64 = regions.whole.values().map(|it| it.left).sum();
                assert_eq!(left, pages.pages.len() as u64);
                let spans = regions.parts.iter().map(|(at, part)| part.end - at);
                assert_eq!(spans.sum::<u64>(), left);
            }
        }
    }

    /// Check that a mapping that another one took the place of is known to a call that was under way
    /// then, and to none that began later.
    #[test]
    fn remembers_what_was_replaced() {
        let mut regions = Regions::default();
        regions.put(10, 20, 1, 'a');
        assert_eq!(regions.replace(12, 14, 5).len(), 1);
        regions.put(12, 14, 5, 'b');
        assert!(regions.knew(12, 13, 3));
        assert_eq!(regions.take(12, 13, 3), []);
        regions.take(12, 14, 7);
        assert!(regions.knew(12, 13, 4));
        assert!(!regions.knew(12, 13, 6));
        assert!(!regions.knew(20, 30, 4));
    }
}
