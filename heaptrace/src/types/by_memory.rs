//! Decides which stacks allocate objects of one class, by the memory of their live blocks.
//!
//! Stage: types. All blocks of a stack must agree, and have one size: larger blocks hold several objects, or more than the object. Must not know
//! how memory is read.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::join::{BlockSizes, Inspected, StackId};
use crate::profile::{BlockType, LiveClass, Profile, Types, Way};
use crate::text::{count, counted};

/// What the last inspection of each program image found.
#[derive(Debug, Default)]
pub struct Inspections {
    of_images: BTreeMap<u64, Inspected>,
}

impl Inspections {
    /// Adds the blocks of an image, by its serial number. They replace those of an earlier inspection.
    pub fn add(&mut self, serial: u64, inspected: &Inspected) {
        let only_sums = Inspected {
            blocks: Vec::new(),
            ..inspected.clone()
        };
        self.of_images.insert(serial, only_sums);
    }

    /// What was inspected, for people.
    pub fn words(&self) -> String {
        let images = || self.of_images.values();
        let sum =
            |of: fn(&Inspected) -> u64| images().fold(0, |sum: u64, it| sum.saturating_add(of(it)));
        let known = |it: &Inspected| {
            let known = it.stacks.iter().filter(|it| it.class.is_some());
            known.fold(0, |sum: u64, it| sum.saturating_add(it.blocks))
        };
        let (read, unread) = (sum(|it| it.read), sum(|it| it.unread));
        if read == 0 && unread == 0 {
            return "no live block was inspected: a process that allocates must run when the first second is over, or at the end of the run".to_owned();
        }
        let mut words = format!(
            "{} of {} inspected blocks begin with an object of a class with virtual functions",
            count(sum(known)),
            count(read)
        );
        if unread > 0 {
            words.push_str(&format!(
                "; {} not inspected: the memory could not be read in the time",
                counted(unread, "block was", "blocks were")
            ));
        }
        words
    }

    /// The inspected blocks of all images by class, those with most bytes first.
    fn classes(&self) -> Vec<LiveClass> {
        let mut sums: BTreeMap<&str, LiveClass> = BTreeMap::new();
        for inspected in self.of_images.values() {
            for part in &inspected.stacks {
                let class = part.class.and_then(|it| inspected.classes.get(it as usize));
                let name = class.map_or("", String::as_str);
                let sum = sums.entry(name).or_insert_with(|| LiveClass {
                    name: name.to_owned(),
                    ..LiveClass::default()
                });
                sum.blocks = sum.blocks.saturating_add(part.blocks);
                sum.bytes = sum.bytes.saturating_add(part.bytes);
            }
        }
        let mut classes: Vec<_> = sums.into_values().collect();
        classes.sort_by_key(|it| Reverse(it.bytes));
        classes
    }

    /// The types of stacks whose blocks are objects of one class.
    pub fn types(&self, profile: &Profile) -> Types {
        if self.of_images.is_empty() {
            return Types::default();
        }
        let all_sizes = profile.block_sizes();
        let mut of_stacks: BTreeMap<StackId, Option<(&str, u64)>> = BTreeMap::new();
        let mut smallest: BTreeMap<&str, u64> = BTreeMap::new();
        for inspected in self.of_images.values() {
            for part in &inspected.stacks {
                let class = part.class.and_then(|it| inspected.classes.get(it as usize));
                if let Some(name) = class {
                    let least = smallest.entry(name).or_insert(part.smallest);
                    *least = part.smallest.min(*least);
                }
                let is_one_size = part.smallest == part.largest;
                let found = class
                    .filter(|_| is_one_size)
                    .map(|name| (name.as_str(), part.smallest));
                let known = of_stacks.entry(part.stack).or_insert(found);
                if *known != found {
                    *known = None;
                }
            }
        }
        let mut types = Types {
            classes: self.classes(),
            ..Types::default()
        };
        let mut ids: BTreeMap<&str, u32> = BTreeMap::new();
        for (stack, found) in of_stacks {
            let Some((name, size)) = found else { continue };
            let of_all = all_sizes
                .get(stack.0 as usize)
                .copied()
                .flatten()
                .map(BlockSizes::same);
            let is_whole = of_all.is_none_or(|it| it == Some(size));
            if !is_whole || smallest.get(name) != Some(&size) {
                continue;
            }
            let next = types.types.len() as u32;
            let id = *ids.entry(name).or_insert_with(|| {
                types.types.push(BlockType {
                    name: name.to_owned(),
                    element: name.to_owned(),
                    element_bytes: size,
                    header_bytes: 0,
                    is_capacity: false,
                    way: Way::Vtable,
                });
                next
            });
            types.of_stacks.insert(stack, id);
        }
        types
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::InspectedStack;
    use crate::profile::RunInfo;

    fn part(stack: u32, class: Option<u32>, sizes: [u64; 2]) -> InspectedStack {
        InspectedStack {
            stack: StackId(stack),
            class,
            blocks: 2,
            bytes: sizes[0] + sizes[1],
            smallest: sizes[0],
            largest: sizes[1],
        }
    }

    fn names(parts: &[(u64, Vec<InspectedStack>)]) -> Vec<(u32, String)> {
        let mut inspections = Inspections::default();
        for (serial, stacks) in parts {
            let inspected = Inspected {
                classes: vec!["Circle".to_owned(), "Square".to_owned()],
                stacks: stacks.clone(),
                ..Inspected::default()
            };
            inspections.add(*serial, &inspected);
        }
        let types = inspections.types(&Profile::new(RunInfo::exact("x")));
        let name = |stack| types.of(stack).unwrap().name.clone();
        let stacks = types.of_stacks.keys();
        stacks.map(|it| (it.0, name(*it))).collect()
    }

    /// Check that a stack has a type only if all of its blocks, in all processes, have one class and one size, and that arrays have none.
    #[test]
    fn all_blocks_must_agree() {
        let (circle, square) = (Some(0), Some(1));
        let first = vec![
            part(1, circle, [24, 24]),
            part(2, square, [40, 40]),
            part(3, circle, [24, 24]),
            part(3, square, [40, 40]),
            part(4, circle, [24, 24]),
            part(4, None, [24, 24]),
            part(5, circle, [48, 48]),
            part(6, square, [40, 80]),
            part(7, None, [24, 24]),
        ];
        let expected = [(1, "Circle".to_owned()), (2, "Square".to_owned())];
        assert_eq!(names(&[(1, first.clone())]), expected);
        let other = vec![part(1, circle, [24, 24]), part(2, circle, [24, 24])];
        let both = names(&[(1, first), (2, other)]);
        assert_eq!(both, [(1, "Circle".to_owned())]);
        // An earlier inspection of the same image does not count.
        let earlier = (1, vec![part(1, square, [40, 40])]);
        let later = (1, vec![part(1, circle, [24, 24])]);
        assert_eq!(names(&[earlier, later]), [(1, "Circle".to_owned())]);
    }
}
