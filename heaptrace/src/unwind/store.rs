//! Allocates space for the tables of many files in the arrays that the kernel program reads.
//!
//! Stage: unwind. Decides the position of each row, page and rule, and returns the values to write. Must not know the
//! kernel's maps, files, nor when a table was used.

use std::collections::{HashMap, HashSet};

use heaptrace_common::rows::{pack_page, pack_row, row_offset, row_rule, slot_of_rows};
use heaptrace_common::unwind::Rule;
use heaptrace_common::wire::{PythonImage, TableRef, V8Image, table};

use super::ranges::Ranges;
use super::table::Table;

/// Sizes of the arrays.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoreLimits {
    /// Slots of two rows, in all segments together.
    pub(super) slots: u32,
    /// Slots in a segment.
    pub(super) segment: u32,
    /// Page entries.
    pub(super) pages: u32,
    /// Rules, at most 65,536.
    pub(super) rules: u32,
    /// Tables.
    pub(super) tables: u32,
    /// Python interpreters.
    pub(super) pythons: u32,
    /// Files with V8.
    pub(super) v8s: u32,
}

/// Values for adjacent elements of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Write<T> {
    /// Index of the first element.
    pub(super) first: u32,
    /// The values, from the first element on.
    pub(super) values: Vec<T>,
}

impl<T> Write<T> {
    fn nothing() -> Self {
        Self {
            first: 0,
            values: Vec::new(),
        }
    }
}

/// The values to write before a table may be published: rules and runtimes first, then rows, then pages, so that
/// each reference is valid when it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placement {
    /// New rules.
    pub(super) rules: Write<Rule>,
    /// A new Python interpreter.
    pub(super) pythons: Write<PythonImage>,
    /// A new V8.
    pub(super) v8s: Write<V8Image>,
    /// Slots of rows, by segment.
    pub(super) rows: Vec<(u32, Write<u64>)>,
    /// Page entries.
    pub(super) pages: Write<u64>,
    /// The reference by which the kernel program finds the table.
    pub(super) table: TableRef,
}

/// Why there is no room for a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoRoom {
    /// Other tables must be removed first.
    #[error("no room for its unwind table")]
    Full,
    /// It does not fit even without other tables.
    #[error("its unwind table is larger than all the memory for tables")]
    TooLarge,
    /// There is no room for its rules.
    #[error("too many unwind rules")]
    Rules,
    /// The tables of its owner's files have used up the share of one owner.
    #[error("the unwind tables of its owner's files use their whole share of the memory already")]
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

/// The number of slots for the rows of a page. Pages share no slot.
fn slots_of(rows: &[u32]) -> u32 {
    rows.len().div_ceil(2) as u32
}

/// The slots with the rows of one page.
#[derive(Clone, Copy, Debug)]
struct SlotRange {
    segment: u32,
    first: u32,
    slots: u32,
}

/// The tables in the arrays, and the free space.
#[derive(Debug)]
pub(super) struct Store {
    limits: StoreLimits,
    rules: HashMap<Rule, u16>,
    pythons: Vec<PythonImage>,
    v8s: Vec<V8Image>,
    segments: Vec<Ranges>,
    pages: Ranges,
    /// Numbers of tables; 0 means no table.
    numbers: Ranges,
    tables: HashMap<u32, (TableRef, Vec<SlotRange>)>,
}

impl Store {
    pub(super) fn new(limits: StoreLimits) -> Self {
        let mut numbers = Ranges::new(limits.tables);
        numbers.allocate(1);
        Self {
            limits,
            // The zeroed arrays of the kernel have this rule at index 0.
            rules: HashMap::from([(Rule::NONE, 0)]),
            pythons: Vec::new(),
            v8s: Vec::new(),
            segments: Vec::new(),
            pages: Ranges::new(limits.pages),
            numbers,
            tables: HashMap::new(),
        }
    }

    /// Allocates space for a table, which must be sound.
    pub(super) fn add(&mut self, built: &Table) -> Result<Placement, NoRoom> {
        let pages = u32::try_from(built.pages.len().saturating_sub(1)).unwrap_or(u32::MAX);
        let slots = Self::slots_for(built);
        if slots > self.limits.slots || pages > self.limits.pages {
            return Err(NoRoom::TooLarge);
        }
        if slots > self.free_slots() {
            return Err(NoRoom::Full);
        }
        if self.new_rules(built) > self.free_rules() {
            return Err(NoRoom::Rules);
        }
        let pages_at = self.pages.allocate(pages).ok_or(NoRoom::Full)?;
        let Some(slot) = self.numbers.allocate(1) else {
            self.pages.release(pages_at, pages);
            return Err(NoRoom::Full);
        };
        let mut ranges = Vec::with_capacity(pages as usize);
        for rows in by_page(built) {
            let Some(range) = self.allocate(slots_of(rows)) else {
                self.release(&ranges);
                self.pages.release(pages_at, pages);
                self.numbers.release(slot, 1);
                return Err(NoRoom::Full);
            };
            ranges.push(range);
        }
        // What is entered here is in the arrays only if the caller gets it. So this is the last that can fail.
        let rules = self.intern(&built.rules);
        let (python, pythons) = intern(&mut self.pythons, self.limits.pythons, built.python);
        let (v8, v8s) = intern(&mut self.v8s, self.limits.v8s, built.v8);
        let row = |row: &u32| {
            let rule = rules.1.get(row_rule(*row) as usize).copied().unwrap_or(0);
            pack_row(row_offset(*row) as u16, rule)
        };
        let rows = ranges.iter().zip(by_page(built)).map(|(range, rows)| {
            let pairs = rows.chunks(2);
            let pairs =
                pairs.map(|it| slot_of_rows(it.first().map_or(0, row), it.get(1).map_or(0, row)));
            let write = Write {
                first: range.first,
                values: pairs.collect(),
            };
            (range.segment, write)
        });
        let entries = ranges.iter().zip(by_page(built)).map(|(range, rows)| {
            let slot = range.segment * self.limits.segment + range.first;
            pack_page(slot.wrapping_mul(2), rows.len() as u32)
        });
        let table = TableRef {
            pages_at,
            pages,
            first_page: built.first_page,
            slot,
            python,
            v8,
            ..TableRef::none(table::LOADED)
        };
        let placement = Placement {
            rules: rules.0,
            pythons,
            v8s,
            rows: rows.collect(),
            pages: Write {
                first: pages_at,
                values: entries.collect(),
            },
            table,
        };
        self.tables.insert(slot, (table, ranges));
        Ok(placement)
    }

    /// The values for a Python interpreter whose file has no table yet.
    pub(super) fn announce(&mut self, image: PythonImage) -> Placement {
        let (python, pythons) = intern(&mut self.pythons, self.limits.pythons, Some(image));
        Placement {
            rules: Write::nothing(),
            pythons,
            v8s: Write::nothing(),
            rows: Vec::new(),
            pages: Write::nothing(),
            table: TableRef {
                python,
                ..TableRef::none(table::REQUESTED)
            },
        }
    }

    /// Frees the space of a table. A walk that still uses the table could then read the rows of another table. So before
    /// this call, the table must be unpublished, and all walks that use it must have ended.
    pub(super) fn remove(&mut self, slot: u32) {
        if let Some((table, ranges)) = self.tables.remove(&slot) {
            self.release(&ranges);
            self.pages.release(table.pages_at, table.pages);
            self.numbers.release(slot, 1);
        }
    }

    /// The Python interpreter that a table names; `None` if it names none.
    pub(super) fn python(&self, number: u32) -> Option<&PythonImage> {
        self.pythons.get(number.checked_sub(1)? as usize)
    }

    /// The most slots and new rules for the tables of one owner, so that there is room for the tables of other owners.
    pub(super) fn share(&self) -> (u32, u32) {
        (self.limits.slots / 2, self.limits.rules / 4)
    }

    /// The number of rules of a table that are not in the arrays yet.
    pub(super) fn new_rules(&self, built: &Table) -> u32 {
        let rules = built.rules.iter();
        let new: HashSet<_> = rules
            .filter(|rule| !self.rules.contains_key(rule))
            .collect();
        new.len() as u32
    }

    /// The number of slots that a table uses.
    pub(super) fn slots_of(&self, slot: u32) -> u32 {
        let ranges = self.tables.get(&slot).map(|(_, ranges)| ranges);
        ranges.map_or(0, |ranges| ranges.iter().map(|range| range.slots).sum())
    }

    /// The number of slots that a table needs.
    pub(super) fn slots_for(built: &Table) -> u32 {
        let slots: u64 = by_page(built).map(|rows| u64::from(slots_of(rows))).sum();
        u32::try_from(slots).unwrap_or(u32::MAX)
    }

    /// The number of slots that no table uses.
    pub(super) fn free_slots(&self) -> u32 {
        let allocated: u32 = self.segments.iter().map(Ranges::allocated).sum();
        self.limits.slots.saturating_sub(allocated)
    }

    /// Limits the store to the existing segments, because the kernel has no memory for more.
    pub(super) fn stop_growing(&mut self, segments: u32) {
        self.segments.truncate(segments as usize);
        self.limits.slots = self.segments.iter().map(Ranges::size).sum();
    }

    /// Allocates slots in one segment.
    fn allocate(&mut self, slots: u32) -> Option<SlotRange> {
        let found = (0..).zip(&mut self.segments).find_map(|(segment, ranges)| {
            let first = ranges.allocate(slots)?;
            Some(SlotRange {
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
        let first = ranges.allocate(slots)?;
        self.segments.push(ranges);
        Some(SlotRange {
            segment,
            first,
            slots,
        })
    }

    fn release(&mut self, ranges: &[SlotRange]) {
        for range in ranges {
            if let Some(segment) = self.segments.get_mut(range.segment as usize) {
                segment.release(range.first, range.slots);
            }
        }
    }

    /// The number of rules for which there is room.
    fn free_rules(&self) -> u32 {
        let most = self.limits.rules.min(1 << 16);
        most.saturating_sub(self.rules.len() as u32)
    }

    /// The indices of a table's rules, and the new rules among them, for which there must be room. Rules are never removed:
    /// there are few, and most files have the same ones.
    fn intern(&mut self, rules: &[Rule]) -> (Write<Rule>, Vec<u16>) {
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
        (new, numbers)
    }
}

/// One more than the index of a runtime, and the new entry. Without room for it, 0: its stacks then have no frames of its language.
/// Runtimes are never removed: there are few, and a walk could still use one.
fn intern<T: Copy + PartialEq>(known: &mut Vec<T>, most: u32, image: Option<T>) -> (u32, Write<T>) {
    let mut new = Write {
        first: known.len() as u32,
        values: Vec::new(),
    };
    let Some(image) = image else {
        return (0, new);
    };
    if let Some(index) = known.iter().position(|known| *known == image) {
        return (index as u32 + 1, new);
    }
    if new.first >= most {
        return (0, new);
    }
    known.push(image);
    new.values.push(image);
    (new.first + 1, new)
}
