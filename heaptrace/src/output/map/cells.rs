//! The memory map as rows of cells, each for some pages, as many as it takes to fit into a picture.
//!
//! Stage: output. Knows nothing of colors and coordinates.

use std::collections::HashMap;

use super::pieces::{PAGE, Piece};
use super::process::ProcessMap;
use super::spans::{self, Holds, Span};
use crate::join::{Kind, StackId};
use crate::proc::residency::{Mapping, MappingKind, PageState};

/// The cells of a row.
pub(super) const COLUMNS: usize = 128;

/// Most rows of a picture, without what the beginning of each mapping needs.
const MOST_ROWS: usize = 72;

/// Most mappings that are drawn.
const MOST_AREAS: usize = 20;

/// Untouched memory of so many rows becomes a gap.
const GAP_ROWS: u64 = 2;

/// Pages that are drawn as one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cell {
    /// Its bytes; the last cell of a part can have fewer than others.
    pub(super) bytes: u64,
    pub(super) resident: u64,
    pub(super) swapped: u64,
    /// Bytes of recorded memory, with headers and rounding.
    pub(super) used: u64,
    /// Blocks that begin or continue in it.
    pub(super) blocks: u64,
    /// The site with most of these bytes, by its number.
    pub(super) site: Option<usize>,
    /// The sums of ages, in nanoseconds, and of the bytes that have one.
    pub(super) aged: f64,
    pub(super) with_age: f64,
}

/// A part of a mapping.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part {
    /// Cells, from an address on.
    Cells { start: u64, cells: Vec<Cell> },
    /// So many bytes that were never touched.
    Gap { bytes: u64 },
}

/// A mapping that is drawn.
#[derive(Debug)]
pub(super) struct Area<'a> {
    pub(super) mapping: &'a Mapping,
    /// Whether it is an allocator's.
    pub(super) has_blocks: bool,
    /// Whether the program mapped it, or a part of it.
    pub(super) is_mapped: bool,
    pub(super) parts: Vec<Part>,
}

/// Everything that is drawn.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    pub(super) bytes_per_cell: u64,
    pub(super) areas: Vec<Area<'a>>,
    /// Mappings that are not drawn, with their resident bytes.
    pub(super) left_out: (usize, u64),
    /// The sites by their numbers: first those with most memory.
    pub(super) sites: Vec<(StackId, Kind)>,
}

/// Pages between two addresses that were never touched and hold nothing, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    start: u64,
    end: u64,
    is_empty: bool,
}

/// Lays out the memory of a process.
pub(super) fn layout<'a>(map: &'a ProcessMap<'a>, pieces: &[Piece]) -> Layout<'a> {
    let (drawn, left_out) = drawn_mappings(map, pieces);
    let stretches: Vec<Vec<Stretch>> = drawn
        .iter()
        .map(|mapping| stretches(mapping, spans::between(pieces, mapping.start, mapping.end)))
        .collect();
    let mut bytes_per_cell = PAGE;
    let rows = |bytes_per_cell: u64| -> u64 {
        let parts = stretches.iter().flat_map(|it| parts(it, bytes_per_cell));
        parts.map(|part| rows_of(&part, bytes_per_cell)).sum()
    };
    while rows(bytes_per_cell) > MOST_ROWS as u64 && bytes_per_cell < 1 << 62 {
        bytes_per_cell *= 2;
    }
    let filling = Filling::new(map);
    let areas = drawn
        .into_iter()
        .zip(&stretches)
        .map(|(mapping, stretches)| {
            let inside = spans::between(pieces, mapping.start, mapping.end);
            let parts = parts(stretches, bytes_per_cell);
            Area {
                mapping,
                has_blocks: mapping.kind == MappingKind::Heap
                    || inside.iter().any(|it| filling.is_heap(it)),
                is_mapped: !inside.is_empty(),
                parts: filling.fill(mapping, inside, &parts, bytes_per_cell),
            }
        })
        .collect();
    Layout {
        bytes_per_cell,
        areas,
        left_out,
        sites: filling.sites,
    }
}

/// The mappings that are drawn, by address, and what is left out of those that could be.
fn drawn_mappings<'a>(
    map: &'a ProcessMap<'a>,
    pieces: &[Piece],
) -> (Vec<&'a Mapping>, (usize, u64)) {
    let mappings = map.map.residency.mappings.iter();
    let mut drawn: Vec<&Mapping> = mappings
        .filter(|it| !it.runs.is_empty())
        .filter(|it| {
            let has_pieces = !spans::between(pieces, it.start, it.end).is_empty();
            let is_heap = it.kind == MappingKind::Heap;
            is_heap || has_pieces || (it.kind == MappingKind::Anonymous && it.resident > 0)
        })
        .collect();
    drawn.sort_by_key(|it| {
        let has_pieces = !spans::between(pieces, it.start, it.end).is_empty();
        std::cmp::Reverse((has_pieces && it.resident > 0, it.resident))
    });
    let rest = drawn.split_off(drawn.len().min(MOST_AREAS));
    let bytes = rest
        .iter()
        .fold(0_u64, |sum, it| sum.saturating_add(it.resident));
    drawn.sort_by_key(|it| it.start);
    (drawn, (rest.len(), bytes))
}

fn stretches(mapping: &Mapping, inside: &[Piece]) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    spans::walk(mapping.start, &mapping.runs, inside, &mut |span| {
        let is_empty = span.holds == Holds::Nothing && span.state == PageState::Untouched;
        match stretches.last_mut() {
            Some(last) if last.is_empty == is_empty => last.end = span.end,
            _ => stretches.push(Stretch {
                start: span.start,
                end: span.end,
                is_empty,
            }),
        }
    });
    stretches
}

/// The parts of a mapping: stretches, of which the longest empty ones are gaps, and all others are drawn as one.
fn parts(stretches: &[Stretch], bytes_per_cell: u64) -> Vec<Stretch> {
    let gap = GAP_ROWS
        .saturating_mul(COLUMNS as u64)
        .saturating_mul(bytes_per_cell);
    let mut parts: Vec<Stretch> = Vec::new();
    for it in stretches {
        let is_empty = it.is_empty && it.end - it.start >= gap;
        match parts.last_mut() {
            Some(last) if !last.is_empty && !is_empty => last.end = it.end,
            _ => parts.push(Stretch { is_empty, ..*it }),
        }
    }
    parts
}

fn rows_of(part: &Stretch, bytes_per_cell: u64) -> u64 {
    match part.is_empty {
        true => 1,
        false => (part.end - part.start)
            .div_ceil(bytes_per_cell)
            .div_ceil(COLUMNS as u64),
    }
}

/// Fills cells with what is in their pages.
struct Filling<'a> {
    map: &'a ProcessMap<'a>,
    sites: Vec<(StackId, Kind)>,
    numbers: HashMap<(StackId, Kind), usize>,
}

impl<'a> Filling<'a> {
    fn new(map: &'a ProcessMap<'a>) -> Self {
        let mut sites: Vec<_> = map.account.sites.iter().collect();
        sites.sort_by_key(|it| {
            std::cmp::Reverse(it.states.resident.value().saturating_add(it.free))
        });
        let sites: Vec<_> = sites.iter().map(|it| (it.stack, it.kind)).collect();
        Self {
            map,
            numbers: sites.iter().copied().zip(0..).collect(),
            sites,
        }
    }

    fn is_heap(&self, piece: &Piece) -> bool {
        let owned = self.map.owned.get(piece.owned);
        owned.is_some_and(|it| it.kind == Kind::Heap)
    }

    fn fill(
        &self,
        mapping: &Mapping,
        inside: &[Piece],
        parts: &[Stretch],
        bytes_per_cell: u64,
    ) -> Vec<Part> {
        let mut filled: Vec<Part> = parts
            .iter()
            .map(|part| match part.is_empty {
                true => Part::Gap {
                    bytes: part.end - part.start,
                },
                false => Part::Cells {
                    start: part.start,
                    cells: vec![
                        Cell::default();
                        (part.end - part.start).div_ceil(bytes_per_cell) as usize
                    ],
                },
            })
            .collect();
        let mut at = 0;
        // The bytes of sites in the last cell.
        let mut votes: HashMap<usize, u64> = HashMap::new();
        let mut last = None;
        spans::walk(mapping.start, &mapping.runs, inside, &mut |span| {
            while parts.get(at).is_some_and(|it| it.end <= span.start) {
                at += 1;
            }
            let Some(Part::Cells { start, cells }) = filled.get_mut(at) else {
                return;
            };
            let mut from = span.start;
            while from < span.end {
                let number = ((from - *start) / bytes_per_cell) as usize;
                let next = (number as u64 + 1).saturating_mul(bytes_per_cell);
                let next = start.saturating_add(next);
                let to = next.min(span.end);
                if last != Some((at, number)) {
                    votes.clear();
                    last = Some((at, number));
                }
                let Some(cell) = cells.get_mut(number) else {
                    return;
                };
                let part = Span {
                    start: from,
                    end: to,
                    ..span
                };
                self.add(cell, &part, &mut votes);
                from = to;
            }
        });
        filled
    }

    fn add(&self, cell: &mut Cell, span: &Span<'_>, votes: &mut HashMap<usize, u64>) {
        let bytes = span.end - span.start;
        cell.bytes += bytes;
        match span.state {
            state if state.is_resident() => cell.resident += bytes,
            PageState::Swapped => cell.swapped += bytes,
            _ => {}
        }
        let pieces = match span.holds {
            Holds::Nothing => &[][..],
            Holds::All(piece) => std::slice::from_ref(piece),
            Holds::Some(pieces) => pieces,
        };
        for piece in pieces {
            let used = piece.end.min(span.end) - piece.start.max(span.start).min(span.end);
            cell.used += used;
            cell.blocks += 1;
            let Some(owned) = self.map.owned.get(piece.owned) else {
                continue;
            };
            if owned.kind == Kind::Heap {
                let age = self.map.map.at_ns.saturating_sub(owned.born_ns);
                cell.aged += age as f64 * used as f64;
                cell.with_age += used as f64;
            }
            let Some(number) = self.numbers.get(&(owned.stack, owned.kind)) else {
                continue;
            };
            let votes_of = votes.entry(*number).or_default();
            *votes_of += used;
            let best = cell.site.and_then(|it| votes.get(&it)).copied();
            if best.is_none_or(|best| votes.get(number) >= Some(&best)) {
                cell.site = Some(*number);
            }
        }
    }
}
