//! Append-only tables in which equal items have one number.
//!
//! Stage: join. Each item is stored once, in its table: the hash table has only numbers, and compares the
//! items they stand for.

use std::hash::{BuildHasher as _, Hash};

use hashbrown::HashTable;

use super::keyed_hash::KeyedHash;
use super::update::{Completeness, LocationId, Stack};

/// A table of items.
#[derive(Debug)]
pub(super) struct Interner<T> {
    items: Vec<T>,
    numbers: Numbers,
    /// Items that [`Interner::take_new`] has handed out.
    handed_out: usize,
}

impl<T: Clone + Eq + Hash> Interner<T> {
    pub(super) fn new() -> Self {
        Self {
            items: Vec::new(),
            numbers: Numbers::default(),
            handed_out: 0,
        }
    }

    /// The number of an item, which is added if it is new.
    pub(super) fn intern(&mut self, item: &T) -> u32 {
        let Self { items, numbers, .. } = self;
        let next = items.len() as u32;
        let is_equal = |number| items.get(number as usize) == Some(item);
        let number = numbers.get(item, next, is_equal);
        if number == next {
            items.push(item.clone());
        }
        number
    }

    /// The item with a number.
    pub(super) fn get(&self, number: u32) -> Option<&T> {
        self.items.get(number as usize)
    }

    /// The items that are new since the last call.
    pub(super) fn take_new(&mut self) -> Vec<T> {
        let new = self.items.get(self.handed_out..);
        let new = new.unwrap_or_default().to_vec();
        self.handed_out = self.items.len();
        new
    }
}

/// A table of stacks. There can be millions, so all their frames are in one list.
#[derive(Debug, Default)]
pub(super) struct StackInterner {
    frames: Vec<LocationId>,
    /// Where the frames of each stack end in the list, and how far the stack goes.
    ends: Vec<(usize, Completeness)>,
    numbers: Numbers,
    handed_out: usize,
}

impl StackInterner {
    /// The number of a stack, which is added if it is new.
    pub(super) fn intern(&mut self, frames: &[LocationId], completeness: Completeness) -> u32 {
        let stack = (frames, completeness);
        let next = self.ends.len() as u32;
        let (all, ends) = (&self.frames, &self.ends);
        let is_equal = |number| get(all, ends, number as usize) == stack;
        let number = self.numbers.get(&stack, next, is_equal);
        if number == next {
            self.frames.extend_from_slice(frames);
            self.ends.push((self.frames.len(), completeness));
        }
        number
    }

    /// The stacks that are new since the last call.
    pub(super) fn take_new(&mut self) -> Vec<Stack> {
        let new = self.handed_out..self.ends.len();
        self.handed_out = new.end;
        new.map(|number| {
            let (frames, completeness) = get(&self.frames, &self.ends, number);
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
    number: usize,
) -> (&'a [LocationId], Completeness) {
    let before = number.checked_sub(1).and_then(|number| ends.get(number));
    let start = before.map_or(0, |(end, _)| *end);
    let own = ends.get(number).copied();
    let (end, completeness) = own.unwrap_or((start, Completeness::Broken));
    let frames = frames.get(start..end).unwrap_or_default();
    (frames, completeness)
}

/// The numbers of items, by the hashes of the items.
#[derive(Debug, Default)]
struct Numbers {
    /// Half of the hash of an item, and its number. With the hash, the table grows without a look at the items.
    table: HashTable<(u32, u32)>,
    hash: KeyedHash,
}

impl Numbers {
    /// The number of an item. A new item gets the next number.
    fn get(&mut self, item: &impl Hash, next: u32, is_equal: impl Fn(u32) -> bool) -> u32 {
        let half = self.hash.hash_one(item) as u32;
        // The table uses the upper and the lower bits of a hash.
        let whole = |half: u32| (u64::from(half) << 32) | u64::from(half);
        let entry = self.table.entry(
            whole(half),
            |(other, number)| *other == half && is_equal(*number),
            |(half, _)| whole(*half),
        );
        entry.or_insert((half, next)).get().1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that equal stacks have one number, that stacks which differ in their end, in one frame or in their
    /// completeness have different ones, and that each is handed out once, unchanged.
    #[test]
    fn equal_stacks_have_one_number() {
        let mut stacks = StackInterner::default();
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
