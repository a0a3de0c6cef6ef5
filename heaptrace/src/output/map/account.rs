//! What resident memory is made of, and which sites keep how much of it.
//!
//! Stage: output. Each resident page is divided among the blocks on it. Its free bytes are shared equally by these blocks: each of them
//! alone is a reason why the page can't be given back. Samples have no such pages, because what else is on them is not known.

use std::collections::HashMap;

use super::pieces::{self, Owned, PAGE, Piece};
use super::row::{Row, What};
use super::spans::{self, Holds, Span};
use crate::join::{Family, Kind, StackId, weight};
use crate::proc::residency::{Mapping, MappingKind, PageState, Residency};

/// A page is nearly empty if at most one part in so many of it is in use.
pub(in crate::output) const NEARLY_EMPTY: u64 = 4;

/// Classes of pages by how full they are: empty, up to each quarter, not quite full, full.
pub(super) const CLASSES: usize = 6;

/// Bytes of blocks by the states of their pages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct States {
    /// In memory.
    pub resident: Estimated,
    /// The part of that in huge pages.
    pub huge: Estimated,
    /// Swapped.
    pub swapped: Estimated,
    /// Never touched, or only read.
    pub untouched: Estimated,
    /// In memory whose pages were not looked at.
    pub unknown: Estimated,
}

/// A sum of samples, or a count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimated {
    value: f64,
    variance: f64,
}

impl Estimated {
    fn add(&mut self, bytes: u64, weight: f64) {
        let bytes = bytes as f64;
        self.value += bytes * weight;
        self.variance += bytes * bytes * (weight * weight - weight);
    }

    /// The number.
    pub fn value(self) -> u64 {
        self.value.round() as u64
    }

    /// Its standard error.
    pub fn error(self) -> u64 {
        self.variance.sqrt().ceil() as u64
    }
}

/// What the blocks of a site keep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SiteMemory {
    /// The stack.
    pub stack: StackId,
    /// The kind of memory.
    pub kind: Kind,
    /// Blocks, or samples of them.
    pub blocks: u64,
    /// How many blocks that are.
    pub count: Estimated,
    /// Requested bytes by the states of their pages.
    pub states: States,
    /// Its part of the free bytes on resident pages with its blocks.
    pub free: u64,
    /// The part of that on nearly empty pages.
    pub pinned: u64,
    /// Nearly empty resident pages with its blocks.
    pub pinned_pages: u64,
    /// The last such page, so that it counts once.
    last_page: u64,
}

/// What a process's resident memory is made of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Account {
    /// The rows, without those that are zero.
    pub rows: Vec<Row>,
    /// Resident memory as the kernel counts it.
    pub resident: u64,
    /// Requested bytes of all live blocks.
    pub live: States,
    /// Resident pages of allocators by how full they are; none of samples.
    pub pages: [u64; CLASSES],
    /// The sites, those that pin most first, then those with most resident memory.
    pub sites: Vec<SiteMemory>,
}

/// How memory was recorded.
#[derive(Clone, Copy, Debug)]
pub struct Recorded {
    /// The allocator, if it is certain which one.
    pub family: Option<Family>,
    /// Whether only a part of all blocks was recorded.
    pub is_partial: bool,
}

impl Account {
    /// Divides the resident memory of a process among recorded memory and other things.
    pub fn new(residency: &Residency, owned: &[Owned], recorded: Recorded) -> Self {
        let pieces = pieces::pieces(owned, recorded.family);
        let mut accounting = Accounting::new(owned, recorded, residency.unknown_pages.is_none());
        for mapping in &residency.mappings {
            accounting.mapping(mapping, &pieces);
        }
        accounting.finish(residency.resident)
    }

    /// The sum of the rows.
    pub fn sum(&self) -> u64 {
        self.rows
            .iter()
            .fold(0, |sum, row| sum.saturating_add(row.bytes))
    }

    /// The bytes of a row.
    pub fn of(&self, what: What) -> u64 {
        let row = self.rows.iter().find(|it| it.what == what);
        row.map_or(0, |row| row.bytes)
    }
}

/// An account under construction.
struct Accounting<'a> {
    owned: &'a [Owned],
    /// The site of each.
    sites_of: Vec<usize>,
    sites: Vec<SiteMemory>,
    recorded: Recorded,
    pages_known: bool,
    rows: [Estimated; What::ALL.len()],
    /// Resident bytes of allocators.
    heap: u64,
    live: States,
    pages: [u64; CLASSES],
}

impl<'a> Accounting<'a> {
    fn new(owned: &'a [Owned], recorded: Recorded, pages_known: bool) -> Self {
        let mut sites: Vec<SiteMemory> = Vec::new();
        let mut indexes = HashMap::new();
        let sites_of = owned
            .iter()
            .map(|it| {
                let index = *indexes.entry((it.stack, it.kind)).or_insert(sites.len());
                if index == sites.len() {
                    sites.push(SiteMemory::new(it));
                }
                if let Some(site) = sites.get_mut(index) {
                    site.blocks += 1;
                    site.count.add(1, weight(it.size, it.mean));
                }
                index
            })
            .collect();
        Self {
            owned,
            sites_of,
            sites,
            recorded,
            pages_known,
            rows: [Estimated::default(); What::ALL.len()],
            heap: 0,
            live: States::default(),
            pages: [0; CLASSES],
        }
    }

    fn mapping(&mut self, mapping: &Mapping, pieces: &[Piece]) {
        let inside = spans::between(pieces, mapping.start, mapping.end);
        let has_blocks = inside.iter().any(|it| self.is_heap(it));
        let what = match mapping.kind {
            MappingKind::Anonymous if has_blocks => What::FreePages,
            kind => What::of_mapping(kind),
        };
        let is_heap = what == What::FreePages;
        let is_file_alone = mapping.kind == MappingKind::File && inside.is_empty();
        if !self.pages_known || mapping.runs.is_empty() || is_file_alone {
            let what = match is_heap {
                true => What::Heap,
                false => what,
            };
            self.add(what, mapping.resident);
            for piece in inside {
                self.unknown(piece, mapping);
            }
            return;
        }
        spans::walk(mapping.start, &mapping.runs, inside, &mut |span| {
            self.span(&span, what, is_heap);
        });
    }

    /// Adds pages. Without recorded memory they are `what`.
    fn span(&mut self, span: &Span<'_>, what: What, is_heap: bool) {
        let bytes = span.end - span.start;
        let is_resident = span.state.is_resident();
        let mut free = bytes;
        let mut blocks = 0;
        let pieces = match span.holds {
            Holds::Nothing => &[][..],
            Holds::All(piece) => std::slice::from_ref(piece),
            Holds::Some(pieces) => pieces,
        };
        for piece in pieces {
            free = free.saturating_sub(self.piece(span, piece));
            blocks += u64::from(self.is_heap(piece));
        }
        if !is_resident {
            return;
        }
        if is_heap {
            let of_program = pieces.iter().filter(|it| !self.is_heap(it));
            let of_program: u64 = of_program.map(|it| overlap(it.start, it.end, span)).sum();
            let of_heap = bytes.saturating_sub(of_program);
            self.heap = self.heap.saturating_add(of_heap);
        }
        let what = match blocks {
            0 => what,
            _ => What::Fragmentation,
        };
        // What is beside samples is not known.
        if !(is_heap && self.recorded.is_partial) {
            self.add(what, free);
        }
        let is_of_allocator = blocks > 0 || (is_heap && pieces.is_empty());
        if is_of_allocator && !self.recorded.is_partial {
            if let Some(class) = self.pages.get_mut(class_of(free, bytes)) {
                *class = class.saturating_add(bytes / PAGE);
            }
            if blocks > 0 && free > 0 {
                self.share(pieces, free, blocks, span.start);
            }
        }
    }

    /// Adds the part of a piece that is in pages. Returns its bytes.
    fn piece(&mut self, span: &Span<'_>, piece: &Piece) -> u64 {
        let requested = overlap(piece.address, piece.requested_end, span);
        let header = overlap(piece.start, piece.address, span);
        let rounding = overlap(piece.requested_end, piece.end, span);
        let Some(it) = self.owned.get(piece.owned) else {
            return 0;
        };
        let weight = weight(it.size, it.mean);
        let site = self.sites_of.get(piece.owned).copied();
        let site = site.and_then(|at| self.sites.get_mut(at));
        let of_site = site.map(|it| &mut it.states);
        for states in of_site.into_iter().chain(Some(&mut self.live)) {
            let sum = match span.state {
                PageState::Resident | PageState::Huge => &mut states.resident,
                PageState::Swapped => &mut states.swapped,
                PageState::Untouched | PageState::Zero => &mut states.untouched,
            };
            sum.add(requested, weight);
            if span.state == PageState::Huge {
                states.huge.add(requested, weight);
            }
        }
        if span.state.is_resident() {
            match it.kind {
                Kind::Heap => {
                    self.add_weighted(What::Live, requested, weight);
                    self.add_weighted(What::Headers, header, weight);
                    self.add_weighted(What::Rounding, rounding, weight);
                }
                Kind::Mapped => self.add(What::Mapped, requested + rounding),
            }
        }
        requested + header + rounding
    }

    /// Adds a piece in a mapping whose pages are not known.
    fn unknown(&mut self, piece: &Piece, mapping: &Mapping) {
        let Some(it) = self.owned.get(piece.owned) else {
            return;
        };
        let from = piece.address.max(mapping.start);
        let bytes = piece.requested_end.min(mapping.end).saturating_sub(from);
        let weight = weight(it.size, it.mean);
        self.live.unknown.add(bytes, weight);
        let site = self.sites_of.get(piece.owned).copied();
        if let Some(site) = site.and_then(|at| self.sites.get_mut(at)) {
            site.states.unknown.add(bytes, weight);
        }
    }

    /// Shares the free bytes of a page among the blocks on it.
    fn share(&mut self, pieces: &[Piece], free: u64, blocks: u64, page: u64) {
        let is_nearly_empty = (PAGE - free) * NEARLY_EMPTY <= PAGE;
        let mut rest = free % blocks;
        for piece in pieces
            .iter()
            .filter(|it| self.is_heap(it))
            .collect::<Vec<_>>()
        {
            let part = free / blocks + std::mem::take(&mut rest);
            let site = self.sites_of.get(piece.owned).copied();
            let Some(site) = site.and_then(|at| self.sites.get_mut(at)) else {
                continue;
            };
            site.free = site.free.saturating_add(part);
            if is_nearly_empty {
                site.pinned = site.pinned.saturating_add(part);
                site.pinned_pages += u64::from(site.last_page != page);
                site.last_page = page;
            }
        }
    }

    fn is_heap(&self, piece: &Piece) -> bool {
        let owned = self.owned.get(piece.owned);
        owned.is_some_and(|it| it.kind == Kind::Heap)
    }

    fn add(&mut self, what: What, bytes: u64) {
        self.add_weighted(what, bytes, 1.0);
    }

    fn add_weighted(&mut self, what: What, bytes: u64, weight: f64) {
        if let Some(row) = self.rows.get_mut(what as usize) {
            row.add(bytes, weight);
        }
    }

    fn finish(mut self, resident: u64) -> Account {
        if self.recorded.is_partial && self.pages_known {
            let of = |what: What| self.rows.get(what as usize).map_or(0, |it| it.value());
            let known = of(What::Live).saturating_add(of(What::Headers));
            let known = known.saturating_add(of(What::Rounding));
            self.add(What::HeapRest, self.heap.saturating_sub(known));
        }
        let rows = What::ALL.into_iter().zip(self.rows);
        let rows = rows.map(|(what, it)| Row {
            what,
            bytes: it.value(),
            error: it.error(),
        });
        let mut sites = self.sites;
        sites.sort_by_key(|it| {
            let states = &it.states;
            let unknown = states.unknown.value();
            let resident = states.resident.value().saturating_add(unknown);
            std::cmp::Reverse((it.pinned, resident, it.blocks))
        });
        Account {
            rows: rows.filter(|row| row.bytes > 0).collect(),
            resident,
            live: self.live,
            pages: self.pages,
            sites,
        }
    }
}

impl SiteMemory {
    fn new(it: &Owned) -> Self {
        Self {
            stack: it.stack,
            kind: it.kind,
            blocks: 0,
            count: Estimated::default(),
            states: States::default(),
            free: 0,
            pinned: 0,
            pinned_pages: 0,
            last_page: u64::MAX,
        }
    }
}

/// The bytes between two addresses that are in pages.
fn overlap(start: u64, end: u64, span: &Span<'_>) -> u64 {
    end.min(span.end).saturating_sub(start.max(span.start))
}

/// The class of pages with so many free bytes.
fn class_of(free: u64, bytes: u64) -> usize {
    let used = bytes - free.min(bytes);
    match used {
        0 => 0,
        used if used == bytes => CLASSES - 1,
        used => (used.saturating_mul(4).div_ceil(bytes) as usize).clamp(1, 4),
    }
}
