//! Where the tables of many files stand in the arrays that the kernel program reads.
//!
//! Stage: unwind. It decides what goes where and says what is to be written; it knows neither the
//! kernel's maps nor files, nor when a table was used.

use std::collections::{HashMap, HashSet};

use heaptrace_common::rows::{pack_page, pack_row, row_offset, row_rule, slot_of_rows};
use heaptrace_common::unwind::Rule;
use heaptrace_common::wire::{TableRef, table};

use super::ranges::Ranges;
use super::table::Table;

/// Sizes of the arrays.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoreLimits {
    /// Slots of two rows, over all segments.
    pub(super) slots: u32,
    /// Slots of a segment.
    pub(super) segment: u32,
    /// Page entries.
    pub(super) pages: u32,
    /// Rules, at most 65,536.
    pub(super) rules: u32,
    /// Tables.
    pub(super) tables: u32,
}

/// Values for neighbouring elements of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Write<T> {
    /// Index of the first element.
    pub(super) first: u32,
    /// The values, from there on.
    pub(super) values: Vec<T>,
}

/// What is to be written before a table may be named: rules first, then rows, then pages, so that
/// nothing refers to what isn't there yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    /// New rules.
    pub(super) rules: Write<Rule>,
    /// Slots of rows, by segment.
    pub(super) rows: Vec<(u32, Write<u64>)>,
    /// Page entries.
    pub(super) pages: Write<u64>,
    /// How the kernel program finds the table.
    pub(super) table: TableRef,
}

/// Why a table has no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoPlace {
    /// Others have to go first.
    #[error("no room for its unwind table")]
    Full,
    /// It would have none if it were the only one.
    #[error("its unwind table is larger than all the memory for tables")]
    TooLarge,
    /// There are too many kinds of frames.
    #[error("too many unwind rules")]
    Rules,
    /// The files of one owner have what one owner can have.
    #[error("the unwind tables of its owner's files have their share of the room already")]
    Share,
}

/// The rows of each page.
fn by_page(built: &Table) -> impl Iterator<Item = &[u32]> {
    let rows_of = |page: &[u32]| match *page {
        [first, end] => built.rows.get(first as usize..end as usize),
        _ => None,
    };
    built.pages.windows(2).filter_map(rows_of)
}

/// Slots for the rows of a page, which share none with others.
fn slots_of(rows: &[u32]) -> u32 {
    rows.len().div_ceil(2) as u32
}

/// Slots of rows that a table has.
#[derive(Clone, Copy, Debug)]
struct Run {
    segment: u32,
    first: u32,
    slots: u32,
}

/// Tables by their places.
#[derive(Debug)]
pub(super) struct Store {
    limits: StoreLimits,
    rules: HashMap<Rule, u16>,
    segments: Vec<Ranges>,
    pages: Ranges,
    /// Numbers of tables; 0 stands for none.
    numbers: Ranges,
    tables: HashMap<u32, (TableRef, Vec<Run>)>,
}

impl Store {
    pub(super) fn new(limits: StoreLimits) -> Self {
        let mut numbers = Ranges::new(limits.tables);
        numbers.take(1);
        Self {
            limits,
            // What the kernel's zeroed arrays say until they are written.
            rules: HashMap::from([(Rule::NONE, 0)]),
            segments: Vec::new(),
            pages: Ranges::new(limits.pages),
            numbers,
            tables: HashMap::new(),
        }
    }

    /// Places a table, which has to be sound.
    pub(super) fn add(&mut self, built: &Table) -> Result<Placed, NoPlace> {
        let pages = u32::try_from(built.pages.len().saturating_sub(1)).unwrap_or(u32::MAX);
        let slots = Self::slots_for(built);
        if slots > self.limits.slots || pages > self.limits.pages {
            return Err(NoPlace::TooLarge);
        }
        if slots > self.free_slots() {
            return Err(NoPlace::Full);
        }
        let rules = self.intern(&built.rules)?;
        let pages_at = self.pages.take(pages).ok_or(NoPlace::Full)?;
        let Some(slot) = self.numbers.take(1) else {
            self.pages.give(pages_at, pages);
            return Err(NoPlace::Full);
        };
        let mut runs = Vec::with_capacity(pages as usize);
        for rows in by_page(built) {
            let Some(run) = self.take(slots_of(rows)) else {
                self.give(&runs);
                self.pages.give(pages_at, pages);
                self.numbers.give(slot, 1);
                return Err(NoPlace::Full);
            };
            runs.push(run);
        }
        let row = |row: &u32| {
            let rule = rules.1.get(row_rule(*row) as usize).copied().unwrap_or(0);
            pack_row(row_offset(*row) as u16, rule)
        };
        let rows = runs.iter().zip(by_page(built)).map(|(run, rows)| {
            let pairs = rows.chunks(2);
            let pairs =
                pairs.map(|it| slot_of_rows(it.first().map_or(0, row), it.get(1).map_or(0, row)));
            let write = Write {
                first: run.first,
                values: pairs.collect(),
            };
            (run.segment, write)
        });
        let entries = runs.iter().zip(by_page(built)).map(|(run, rows)| {
            let slot = run.segment * self.limits.segment + run.first;
            pack_page(slot.wrapping_mul(2), rows.len() as u32)
        });
        let table = TableRef {
            pages_at,
            pages,
            first_page: built.first_page,
            slot,
            ..TableRef::none(table::LOADED)
        };
        let placed = Placed {
            rules: rules.0,
            rows: rows.collect(),
            pages: Write {
                first: pages_at,
                values: entries.collect(),
            },
            table,
        };
        self.tables.insert(slot, (table, runs));
        Ok(placed)
    }

    /// Gives a table's place to others. Whoever still walks by the table could read another's rows:
    /// what leads to it has to be gone first, and those who were on the way.
    pub(super) fn remove(&mut self, slot: u32) {
        if let Some((table, runs)) = self.tables.remove(&slot) {
            self.give(&runs);
            self.pages.give(table.pages_at, table.pages);
            self.numbers.give(slot, 1);
        }
    }

    /// Slots and rules that the tables of one owner can have, so that there is room for those of others.
    pub(super) fn share(&self) -> (u32, u32) {
        (self.limits.slots / 2, self.limits.rules / 4)
    }

    /// Rules of a table that no other one has.
    pub(super) fn new_rules(&self, built: &Table) -> u32 {
        let rules = built.rules.iter();
        let new: HashSet<_> = rules
            .filter(|rule| !self.rules.contains_key(rule))
            .collect();
        new.len() as u32
    }

    /// Slots that a table takes.
    pub(super) fn slots_of(&self, slot: u32) -> u32 {
        let runs = self.tables.get(&slot).map(|(_, runs)| runs);
        runs.map_or(0, |runs| runs.iter().map(|run| run.slots).sum())
    }

    /// Slots that a table would need.
    pub(super) fn slots_for(built: &Table) -> u32 {
        let slots: u64 = by_page(built).map(|rows| u64::from(slots_of(rows))).sum();
        u32::try_from(slots).unwrap_or(u32::MAX)
    }

    /// Slots that no table takes.
    pub(super) fn free_slots(&self) -> u32 {
        let taken: u32 = self.segments.iter().map(Ranges::taken).sum();
        self.limits.slots.saturating_sub(taken)
    }

    /// No segment more than there are: the kernel has no memory for it.
    pub(super) fn stop_growing(&mut self, segments: u32) {
        self.segments.truncate(segments as usize);
        self.limits.slots = self.segments.iter().map(Ranges::size).sum();
    }

    /// Takes slots of one segment.
    fn take(&mut self, slots: u32) -> Option<Run> {
        let found = (0..).zip(&mut self.segments).find_map(|(segment, ranges)| {
            let first = ranges.take(slots)?;
            Some(Run {
                segment,
                first,
                slots,
            })
        });
        if found.is_some() {
            return found;
        }
        let segment = self.segments.len() as u32;
        let left = self.limits.slots - self.segments.iter().map(Ranges::size).sum::<u32>();
        let mut ranges = Ranges::new(left.min(self.limits.segment));
        let first = ranges.take(slots)?;
        self.segments.push(ranges);
        Some(Run {
            segment,
            first,
            slots,
        })
    }

    fn give(&mut self, runs: &[Run]) {
        for run in runs {
            if let Some(ranges) = self.segments.get_mut(run.segment as usize) {
                ranges.give(run.first, run.slots);
            }
        }
    }

    /// The store's numbers of a table's rules, and what is new among them. Rules stay: there are few,
    /// and the next file has the same.
    fn intern(&mut self, rules: &[Rule]) -> Result<(Write<Rule>, Vec<u16>), NoPlace> {
        let unknown: HashSet<_> = rules
            .iter()
            .filter(|rule| !self.rules.contains_key(rule))
            .collect();
        let most = self.limits.rules.min(1 << 16) as usize;
        if unknown.len() > most.saturating_sub(self.rules.len()) {
            return Err(NoPlace::Rules);
        }
        let mut new = Write {
            first: self.rules.len() as u32,
            values: Vec::new(),
        };
        let numbers = rules.iter().map(|rule| {
            let next = self.rules.len() as u16;
            *self.rules.entry(*rule).or_insert_with(|| {
                new.values.push(*rule);
                next
            })
        });
        let numbers = numbers.collect();
        Ok((new, numbers))
    }
}
