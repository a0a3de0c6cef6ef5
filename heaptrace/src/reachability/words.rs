//! The words of pages that may be addresses of blocks.
//!
//! Part of `reachability`. Must not know how pages are read.

use super::places::{PlaceKind, Places};

/// Words of a page. The kernel program is only for machines with such pages.
pub(super) const PAGE_WORDS: usize = 512;

/// Bytes of a page.
pub(super) const PAGE: u64 = PAGE_WORDS as u64 * 8;

/// Words that are looked at together.
const GROUP: usize = 8;

/// The addresses that blocks can have: two ranges, because one heap is often far from the others.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Filter {
    first: [u64; 2],
    length: [u64; 2],
}

impl Filter {
    /// The addresses of memory without a file, and what lies near: it may grow.
    pub(super) fn of(places: &Places) -> Self {
        const UPPER: u64 = 0x7000_0000_0000;
        const NEAR: u64 = 1 << 36;
        let mut filter = Self::default();
        let anonymous = places
            .all
            .iter()
            .filter(|it| it.kind == PlaceKind::Anonymous);
        for place in anonymous {
            let half = usize::from(place.start >= UPPER);
            let [start, end] = match half {
                0 => [place.start, place.end.saturating_add(NEAR)],
                _ => [
                    place.start.saturating_sub(NEAR),
                    place.end.saturating_add(NEAR),
                ],
            };
            let (first, length) = (&mut filter.first[half], &mut filter.length[half]);
            let old_end = first.saturating_add(*length);
            if *length == 0 {
                (*first, *length) = (start, end - start);
            } else {
                *first = start.min(*first);
                *length = end.max(old_end) - *first;
            }
        }
        filter
    }

    /// The addresses of some memory: where it begins, and where it ends.
    pub(super) fn between(start: u64, end: u64) -> Self {
        Self {
            first: [start, 0],
            length: [end.saturating_sub(start), 0],
        }
    }

    #[inline(always)]
    fn has(&self, word: u64) -> bool {
        let is_in = |half: usize| word.wrapping_sub(self.first[half]) < self.length[half];
        // Both are computed, so that no branch depends on the word.
        is_in(0) | is_in(1)
    }
}

/// Some pages, with their words that may be addresses.
#[derive(Debug, Default)]
pub(super) struct Piece {
    /// The addresses of the pages.
    pub(super) pages: Vec<u64>,
    /// How many words are kept of the pages up to each one, with it.
    ends: Vec<u32>,
    /// Where each word is in its page, as a number of words.
    places: Vec<u16>,
    words: Vec<u64>,
    /// A number for the contents of each page, if that was asked for.
    pub(super) hashes: Vec<u64>,
}

impl Piece {
    /// The words of a page that lie between two addresses, with the addresses at which they are.
    pub(super) fn words(
        &self,
        index: usize,
        start: u64,
        end: u64,
    ) -> impl Iterator<Item = (u64, u64)> + '_ {
        let page = self.pages.get(index).copied().unwrap_or(0);
        let to = self.ends.get(index).map_or(0, |it| *it as usize);
        let from = match index.checked_sub(1) {
            Some(before) => self.ends.get(before).map_or(0, |it| *it as usize),
            None => 0,
        };
        let places = self.places.get(from..to).unwrap_or_default();
        let words = self.words.get(from..to).unwrap_or_default();
        let address = move |place: u16| page + u64::from(place) * 8;
        let skipped = places.partition_point(|it| address(*it) < start);
        let pairs = places.iter().zip(words).skip(skipped);
        pairs
            .map(move |(place, word)| (address(*place), *word))
            .take_while(move |(at, _)| at.saturating_add(8) <= end)
    }

    /// Adds a page: its words that pass a filter, and a number for its contents.
    pub(super) fn add(
        &mut self,
        address: u64,
        page: &[u64; PAGE_WORDS],
        filter: Option<&Filter>,
        has_hash: bool,
    ) {
        self.pages.push(address);
        if let Some(filter) = filter {
            scan(filter, page, self);
        }
        self.ends.push(self.words.len() as u32);
        if has_hash {
            self.hashes.push(hash(page));
        }
    }

    /// How many words are kept.
    pub(super) fn count(&self) -> usize {
        self.words.len()
    }
}

/// Keeps the words of a page that may be addresses.
fn scan(filter: &Filter, page: &[u64; PAGE_WORDS], piece: &mut Piece) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has these instructions.
        return unsafe { scan_avx2(filter, page, piece) };
    }
    scan_any(filter, page, piece);
}

/// The same as [`scan_any`], compiled for wide registers: the process may be stopped meanwhile.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn scan_avx2(filter: &Filter, page: &[u64; PAGE_WORDS], piece: &mut Piece) {
    scan_any(filter, page, piece);
}

#[inline(always)]
fn scan_any(filter: &Filter, page: &[u64; PAGE_WORDS], piece: &mut Piece) {
    let groups = page.as_chunks::<GROUP>().0;
    for (at, group) in groups.iter().enumerate() {
        let has_any = group
            .iter()
            .fold(false, |has_any, word| has_any | filter.has(*word));
        if !has_any {
            continue;
        }
        for (place, word) in group.iter().enumerate() {
            if filter.has(*word) {
                piece.places.push((at * GROUP + place) as u16);
                piece.words.push(*word);
            }
        }
    }
}

/// A number that changes with the contents of a page.
fn hash(page: &[u64; PAGE_WORDS]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut lanes = [1_u64, 2, 3, 4];
    for group in page.as_chunks::<4>().0 {
        for (lane, word) in lanes.iter_mut().zip(group) {
            *lane = (lane.rotate_left(23) ^ word).wrapping_mul(FACTOR);
        }
    }
    lanes
        .iter()
        .fold(0, |sum, lane| (sum ^ lane).wrapping_mul(FACTOR))
}
