//! Append-only tables in which equal things have one index.
//!
//! Stage: join. Each thing is kept once: the index has only its number, and what it stands for is compared.

use std::hash::{BuildHasher as _, Hash};

use hashbrown::HashTable;

use super::keyed_hash::KeyedHash;
use super::update::{Completeness, LocationId, Stack};

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Interner<T> {
    items: Vec<T>,
    index: Index,
    /// How many were handed out by [`Interner::take_new`].
    handed_out: usize,
}

impl<T: Clone + Eq + Hash> Interner<T> {
    pub(super) fn new() -> Self {
        Self {
            items: Vec::new(),
            index: Index::default(),
            handed_out: 0,
        }
    }

    /// Index of an item.
    pub(super) fn intern(&mut self, item: &T) -> u32 {
        let Self { items, index, .. } = self;
        let next = items.len() as u32;
        let index = index.get(item, next, |index| items.get(index as usize) == Some(item));
        if index == next {
            items.push(item.clone());
        }
        index
    }

    /// The items that came since the last call.
    pub(super) fn take_new(&mut self) -> Vec<T> {
        let new = self.items.get(self.handed_out..);
        let new = new.unwrap_or_default().to_vec();
        self.handed_out = self.items.len();
        new
    }
}

/// The same for stacks, of which there can be millions: all their frames stand in one list.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    frames: Vec<LocationId>,
    /// Where the frames of each end, and how far they go.
    ends: Vec<(usize, Completeness)>,
    index: Index,
    handed_out: usize,
}

impl Stacks {
    /// Index of a stack.
    pub(super) fn intern(&mut self, frames: &[LocationId], completeness: Completeness) -> u32 {
        let stack = (frames, completeness);
        let next = self.ends.len() as u32;
        let (all, ends) = (&self.frames, &self.ends);
        let is_it = |index| get(all, ends, index as usize) == stack;
        let index = self.index.get(&stack, next, is_it);
        if index == next {
            self.frames.extend_from_slice(frames);
            self.ends.push((self.frames.len(), completeness));
        }
        index
    }

    /// The stacks that came since the last call.
    pub(super) fn take_new(&mut self) -> Vec<Stack> {
        let new = self.handed_out..self.ends.len();
        self.handed_out = new.end;
        new.map(|index| {
            let (frames, completeness) = get(&self.frames, &self.ends, index);
            Stack {
                locations: frames.to_vec(),
                completeness,
            }
        })
        .collect()
    }
}

fn get<'a>(
    frames: &'a [LocationId],
    ends: &[(usize, Completeness)],
    index: usize,
) -> (&'a [LocationId], Completeness) {
    let before = index.checked_sub(1).and_then(|index| ends.get(index));
    let start = before.map_or(0, |(end, _)| *end);
    let own = ends.get(index).copied();
    let (end, completeness) = own.unwrap_or((start, Completeness::Broken));
    let frames = frames.get(start..end).unwrap_or_default();
    (frames, completeness)
}

/// Indices by the hashes of what they stand for.
#[derive(Debug, Default)]
struct Index {
    /// With half of their hashes, so that nothing is looked at again when the table grows.
    table: HashTable<(u32, u32)>,
    key: KeyedHash,
}

impl Index {
    /// The index that is an item's, or else the next one, which is its own then.
    fn get(&mut self, item: &impl Hash, next: u32, is_it: impl Fn(u32) -> bool) -> u32 {
        let half = self.key.hash_one(item) as u32;
        // The table looks at the bits of both ends.
        let whole = |half: u32| (u64::from(half) << 32) | u64::from(half);
        let entry = self.table.entry(
            whole(half),
            |(other, index)| *other == half && is_it(*index),
            |(half, _)| whole(*half),
        );
        entry.or_insert((half, next)).get().1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that equal stacks have one index, that those which differ only in where they end, or in one frame, or
    /// in how far they go have others, and that each is handed out once as it came.
    #[test]
    fn stacks_are_known_by_their_frames() {
        let mut stacks = Stacks::default();
        let stack = |number: u32| {
            let frames = (0..number % 23).map(|level| LocationId((number / 23) >> level));
            let completeness = match number % 2 {
                0 => Completeness::Complete,
                _ => Completeness::Broken,
            };
            (frames.collect::<Vec<_>>(), completeness)
        };
        let mut expected = Vec::<(Vec<LocationId>, Completeness)>::new();
        let mut found = Vec::new();
        for number in 0..4000 {
            let (frames, completeness) = stack(number);
            let index = stacks.intern(&frames, completeness) as usize;
            let known = expected
                .iter()
                .position(|it| *it == (frames.clone(), completeness));
            assert_eq!(index, known.unwrap_or(expected.len()), "{number}");
            if known.is_none() {
                expected.push((frames, completeness));
            }
            if number % 1000 == 0 {
                found.extend(stacks.take_new());
            }
        }
        found.extend(stacks.take_new());
        let found: Vec<_> = found
            .into_iter()
            .map(|it| (it.locations, it.completeness))
            .collect();
        assert_eq!(found, expected);
        assert!(expected.len() > 1000 && expected.len() < 4000);
    }
}
