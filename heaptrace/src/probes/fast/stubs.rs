//! The linkage stubs of a process that can lead to the fast path's code, and where there is room for the words by which they will
//! jump.
//!
//! Stage: probes. A stub keeps its slot, which others read. Its displacement is changed so that it jumps by a word of ours, the
//! link, which has the slot's address but for a multiple of 16 MiB or of 64 KiB, so that one byte of the displacement changes. Reads
//! the process's memory, and writes nothing. Must not know how files are parsed, nor who writes.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use super::code::{self, Way};
use super::earlier::Earlier;
use super::messages::{LinkPlace, Redirect};
use super::patch::{CODE_BYTES, Jump};
use super::records;
use super::slots::StubIn;
use crate::proc::maps::Mapping;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Distances between a slot and its link: each changes one byte of the stub, if none is carried to the next.
const STRIDES: [u64; 2] = [1 << 24, 1 << 16];

/// Values of a byte.
const VALUES: u64 = 1 << 8;

/// Free addresses that are left on both sides of a page of links.
const MARGIN: u64 = 1 << 20;

/// The lowest address that a process may map, on most systems.
const LOWEST: u64 = 1 << 16;

/// The first address that a process can't map.
const HIGHEST: u64 = 1 << 47;

/// Most places that are tried for a page of links.
const MOST_PLACES: usize = 8;

/// Most pages of links in a process.
pub const MOST_PAGES: usize = 16;

/// The heap grows upwards, so there are no links in so many bytes above where it begins.
const HEAP: u64 = 1 << 36;

/// A stub that leads to an allocator function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stub {
    /// The function's number in [`code::FUNCTIONS`].
    pub function: usize,
    /// Address of the slot.
    pub slot: u64,
    /// Its jump.
    pub jump: Jump,
}

/// The stubs that lead to the code, and the pages for their links.
#[derive(Debug, Default)]
pub struct Stubs {
    way: Way,
    /// The stubs.
    pub stubs: Vec<Stub>,
    /// Pages with slots of these stubs, each with where its page of links may be.
    pub pages: Vec<(u64, LinkPlace)>,
}

/// The jump of a stub in a process, if it is there as in the file, and jumps by its slot.
pub(super) fn jump(file: &File, memory: &File, stub: &StubIn) -> Option<Jump> {
    let (mut there, mut in_file) = ([0; CODE_BYTES], [0; CODE_BYTES]);
    let address = stub.stub.jump;
    memory.read_exact_at(&mut there, address).ok()?;
    file.read_exact_at(&mut in_file, stub.offset).ok()?;
    let jump = Jump {
        address,
        code: there,
    };
    (there == in_file && jump.word() == Some(stub.stub.slot)).then_some(jump)
}

impl Stubs {
    /// Keeps the stubs that can be changed. `heap` is the address above which a heap may grow; `earlier` is the mapping that will
    /// be used again.
    pub(super) fn new(
        mut stubs: Vec<Stub>,
        way: Way,
        mappings: &[Mapping],
        heap: u64,
        earlier: Option<&Earlier>,
    ) -> Self {
        stubs.sort_by_key(|it| (!code::frees(it.function), it.jump.address));
        // A change that can't be recorded must not be made.
        stubs.truncate(records::MOST);
        let mut by_page: BTreeMap<u64, Vec<Stub>> = BTreeMap::new();
        for stub in &stubs {
            let page = stub.slot - stub.slot % PAGE;
            by_page.entry(page).or_default().push(*stub);
        }
        let room = Room { mappings, heap };
        let pages: Vec<(u64, LinkPlace)> = by_page
            .into_iter()
            .take(MOST_PAGES)
            .filter_map(|(page, stubs)| {
                let old = earlier.and_then(|it| old_page(it, &stubs, way));
                let place = old.map_or_else(
                    || LinkPlace::FirstFree(room.places(page, &stubs)),
                    LinkPlace::Old,
                );
                let is_possible = place != LinkPlace::FirstFree(Vec::new());
                is_possible.then_some((page, place))
            })
            .collect();
        stubs.retain(|it| pages.iter().any(|(page, _)| is_on(it, *page)));
        Self { way, stubs, pages }
    }

    /// What must be changed if the code is at `base`, and the pages of links at these addresses; those that are 0 are missing.
    pub fn redirects(&self, base: u64, links: &[u64]) -> Vec<Redirect> {
        let pages = self.pages.iter().zip(links).filter(|(_, at)| **at != 0);
        let of_page = |((page, _), at): (&(u64, LinkPlace), &u64)| {
            let (page, at) = (*page, *at);
            let stubs = self.stubs.iter().filter(move |it| is_on(it, page));
            stubs.filter_map(move |stub| {
                let link = at + stub.slot % PAGE;
                Some(Redirect {
                    patch: stub.jump.by(link)?,
                    link,
                    target: code::entry(base, stub.function, self.way)?,
                })
            })
        };
        pages.flat_map(of_page).collect()
    }
}

fn is_on(stub: &Stub, page: u64) -> bool {
    stub.slot - stub.slot % PAGE == page
}

/// The page of links that an earlier run has left for these stubs.
fn old_page(earlier: &Earlier, stubs: &[Stub], way: Way) -> Option<u64> {
    let records = earlier.records();
    let link = |stub: &Stub| {
        let mut words = records.iter().filter_map(|it| stub.jump.after(it)?.word());
        let target = code::entry(earlier.base, stub.function, way)?;
        words.find(|it| it % PAGE == stub.slot % PAGE && earlier.link(*it) == Some(target))
    };
    let link = stubs.iter().find_map(link);
    link.map(|link| link - link % PAGE)
}

/// Free addresses of a process.
struct Room<'a> {
    mappings: &'a [Mapping],
    heap: u64,
}

impl Room<'_> {
    /// Places for the links of stubs whose slots are on a page, the best first.
    fn places(&self, page: u64, stubs: &[Stub]) -> Vec<u64> {
        let is_possible = |place: u64| {
            let link = |stub: &Stub| place.checked_add(stub.slot % PAGE);
            let mut stubs = stubs.iter();
            stubs.all(|it| link(it).is_some_and(|link| it.jump.by(link).is_some()))
        };
        let mut places: Vec<u64> = Vec::new();
        for stride in STRIDES {
            let both = (1..VALUES).flat_map(|times| {
                let distance = times * stride;
                [page.checked_sub(distance), page.checked_add(distance)]
            });
            for place in both.flatten() {
                if places.len() >= MOST_PLACES {
                    break;
                }
                if !places.contains(&place) && is_possible(place) && self.is_free(place) {
                    places.push(place);
                }
            }
        }
        places
    }

    /// Whether a page is free, with a margin, and neither the heap nor the stack can grow over it. Where the next above it is the heap, the
    /// kernel puts nothing by itself, and no margin is needed.
    fn is_free(&self, place: u64) -> bool {
        let behind = self.mappings.partition_point(|it| it.start <= place);
        let below = behind.checked_sub(1).and_then(|at| self.mappings.get(at));
        let above = self.mappings.get(behind);
        let from = below.map_or(LOWEST, |it| it.end.max(LOWEST));
        let to = above.map_or(HIGHEST, |it| it.start.min(HIGHEST));
        if place < self.heap && self.heap <= to {
            return from <= place && place.saturating_add(PAGE) <= self.heap;
        }
        from.saturating_add(MARGIN) <= place
            && place.saturating_add(PAGE + MARGIN) <= to
            && above.is_none_or(|it| it.path != "[stack]")
            && !(self.heap..self.heap.saturating_add(HEAP)).contains(&place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::maps;

    /// Two stubs of a file at an address: slots and jumps as in a small program.
    fn stubs(at: u64) -> Vec<Stub> {
        let stub = |function, number: u64| {
            let (address, slot) = (at + 0x1030 + 8 * number, at + 0x3fd0 + 8 * number);
            let mut code = [0x90; CODE_BYTES];
            code[..2].copy_from_slice(&[0xff, 0x25]);
            let displacement = (slot - address - 6) as u32;
            code[2..6].copy_from_slice(&displacement.to_le_bytes());
            let jump = Jump { address, code };
            assert_eq!(jump.word(), Some(slot));
            Stub {
                function,
                slot,
                jump,
            }
        };
        vec![stub(0, 0), stub(1, 1)]
    }

    fn places(at: u64, mappings: &str, heap: u64) -> Vec<u64> {
        let mappings: Vec<Mapping> = maps::parse(mappings).collect();
        let stubs = Stubs::new(stubs(at), Way::Sampled, &mappings, heap, None);
        match stubs.pages.as_slice() {
            [] => Vec::new(),
            [(page, LinkPlace::FirstFree(places))] if *page == at + 0x3000 => places.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// Check that the links of a program lie below it, out of reach of its heap, and so that one byte of each stub changes.
    #[test]
    fn programs_have_their_links_below() {
        let at = 0x5555_5555_4000;
        let maps = "555555554000-555555559000 r-xp 00000000 08:01 5 /bin/a\n\
                    555555570000-555555590000 rw-p 00000000 00:00 0 [heap]\n\
                    7ffff7dd0000-7ffff7df0000 r-xp 00000000 08:01 6 /lib/c\n";
        let found = places(at, maps, 0x5555_5557_0000);
        assert_eq!(found.len(), MOST_PLACES);
        assert_eq!(found[0], at + 0x3000 - (1 << 24));
        assert!(
            found
                .iter()
                .all(|it| *it < at && (at + 0x3000 - it).is_multiple_of(1 << 24))
        );
        let all = Stubs::new(stubs(at), Way::Sampled, &[], 0, None);
        assert_eq!(all.redirects(0x1000, &[0]), []);
        let redirects = all.redirects(0x7fff_0000_0000, &[found[0]]);
        // Frees first.
        assert_eq!(
            redirects[0].target,
            code::entry(0x7fff_0000_0000, 1, Way::Sampled).unwrap()
        );
        for (redirect, stub) in redirects.iter().zip(&all.stubs) {
            assert_eq!(redirect.link, found[0] + stub.slot % PAGE);
            assert!(redirect.patch.is_sound());
            let after = stub.jump.after(&redirect.patch).unwrap();
            assert_eq!(after.word(), Some(redirect.link));
        }
        assert_eq!(redirects.len(), 2);
    }

    /// Check that a program at a fixed low address has its links between itself and where its heap begins.
    #[test]
    fn fixed_programs_have_room_below_their_heaps() {
        let at = 0x40_0000;
        let maps = "00400000-00405000 r-xp 00000000 08:01 5 /bin/a\n\
                    00a00000-00b00000 rw-p 00000000 00:00 0 [heap]\n";
        let found = places(at, maps, 0xa0_0000);
        assert_eq!(found.len(), MOST_PLACES);
        let room = at + 0x5000..=0xa0_0000 - PAGE;
        assert!(found.iter().all(|it| room.contains(it)), "{found:x?}");
        let mappings: Vec<Mapping> = maps::parse(maps).collect();
        let stubs = Stubs::new(stubs(at), Way::Sampled, &mappings, 0xa0_0000, None);
        assert_eq!(stubs.redirects(0x7fff_0000_0000, &[found[0]]).len(), 2);
        // Where its heap begins right behind it, there is no place that one byte leads to.
        assert_eq!(places(at, maps, at + 0x5000), [0; 0]);
    }

    /// Check that no place is taken beside another mapping, in the way of the stack, or out of reach.
    #[test]
    fn taken_places_are_left_out() {
        let at = 0x7fff_0000_0000;
        let line = |from: u64, to: u64, path: &str| {
            format!("{from:x}-{to:x} r-xp 00000000 08:01 5 {path}\n")
        };
        let file = line(at, at + 0x5000, "/lib/a");
        let wide = 1_u64 << 31;
        let below = line(at - wide, at - 0x1000, "/lib/big");
        let stack = line(at + 2 * wide, at + 2 * wide + 0x1000, "[stack]");
        assert_eq!(places(at, &format!("{below}{file}{stack}"), 0), [0; 0]);
        let other = line(at + 2 * wide, at + 2 * wide + 0x1000, "/lib/b");
        let found = places(at, &format!("{below}{file}{other}"), 0);
        assert!(found.len() == MOST_PLACES && found.iter().all(|it| *it > at));
        assert!(found.iter().all(|it| it.abs_diff(at) < 1 << 31));
        // Two files close together leave no margin.
        let close = line(at + 0x2f_0000, at + wide, "/lib/b");
        let found = places(at, &format!("{below}{file}{close}{stack}"), 0);
        let place = at
            + 0x3000
            + (0x10..0x1f)
                .map(|it| it << 16)
                .find(|it| *it >= MARGIN)
                .unwrap();
        assert!(
            found.iter().all(|it| *it >= place && *it < at + 0x20_0000),
            "{found:x?}"
        );
        assert!(!found.is_empty());
    }
}
