//! Loaded tables, read in the way of the kernel program, while tables are loaded and evicted.
//!
//! Stage: unwind.

use std::collections::HashMap;

use heaptrace_common::rows::{
    PAGE_BITS, pack_row, page_first_row, page_rows, row_of_slot, row_offset, row_rule,
};
use heaptrace_common::unwind::Rule;
use heaptrace_common::wire::{FileKey, PythonImage, TableRef, table};

use super::Random;
use super::real::vdso;
use crate::reader::FileOwner;
use crate::unwind::loader::{Arrays, Loader, MAX_FILES, State};
use crate::unwind::store::{NoRoom, Placement, StoreLimits};
use crate::unwind::{Limits, Table, build, lookup};

/// The kernel's arrays, in this process. Asserts that no reachable value is overwritten.
struct Memory {
    limits: StoreLimits,
    segments: Vec<Vec<u64>>,
    max_segments: usize,
    pages: Vec<u64>,
    rules: Vec<Rule>,
    pythons: Vec<Option<PythonImage>>,
    uses: Vec<u64>,
    names: HashMap<FileKey, TableRef>,
    /// Tables that were unpublished, and that a walk may still use.
    in_use: Vec<TableRef>,
    waits: usize,
}

impl Memory {
    fn new(limits: StoreLimits) -> Self {
        Self {
            limits,
            segments: Vec::new(),
            max_segments: usize::MAX,
            pages: vec![0; limits.pages as usize],
            rules: vec![Rule::NONE; limits.rules as usize],
            pythons: vec![None; limits.pythons as usize],
            uses: vec![0; limits.tables as usize],
            names: HashMap::new(),
            in_use: Vec::new(),
            waits: 0,
        }
    }

    /// The row ranges of all pages that can be reached now.
    fn reachable(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let named = self.names.values().chain(&self.in_use);
        let named = named.filter(|it| it.state == table::LOADED);
        named.flat_map(|it| {
            (it.pages_at..it.pages_at + it.pages).map(|page| {
                let page = self.pages[page as usize];
                (page_first_row(page), page_first_row(page) + page_rows(page))
            })
        })
    }

    fn lookup(&self, table: TableRef, file_offset: u64) -> Option<Rule> {
        let page = (file_offset >> PAGE_BITS).checked_sub(u64::from(table.first_page))?;
        let page = u32::try_from(page).ok()?;
        if page >= table.pages {
            return None;
        }
        let page = self.pages[(table.pages_at + page) as usize];
        let (mut low, mut high) = (page_first_row(page), page_first_row(page) + page_rows(page));
        let row = |index: u32| {
            let slot = index / 2;
            let segment = &self.segments[(slot / self.limits.segment) as usize];
            row_of_slot(segment[(slot % self.limits.segment) as usize], index)
        };
        while low < high {
            let middle = low + (high - low) / 2;
            if u64::from(row_offset(row(middle))) <= file_offset & 0xffff {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Some(self.rules[row_rule(row(low - 1)) as usize])
    }

    fn assert_same(&self, placed: TableRef, table: &Table, random: &mut Random) {
        let bytes = (table.pages.len() + 2) << PAGE_BITS;
        let from = u64::from(table.first_page) << PAGE_BITS;
        for _ in 0..200 {
            let at = (from + random.below(bytes) as u64).saturating_sub(1 << PAGE_BITS);
            assert_eq!(self.lookup(placed, at), lookup(table, at), "{at:x}");
        }
    }
}

impl Arrays for Memory {
    fn write(&mut self, placement: &Placement) -> Result<(), u32> {
        for (at, rule) in (placement.rules.first as usize..).zip(&placement.rules.values) {
            assert_eq!(self.rules[at], Rule::NONE, "a rule was there already");
            self.rules[at] = *rule;
        }
        for (at, image) in (placement.pythons.first as usize..).zip(&placement.pythons.values) {
            let before = self.pythons[at].replace(*image);
            assert_eq!(before, None, "an interpreter was there already");
        }
        let reachable: Vec<_> = self.reachable().collect();
        for (segment, write) in &placement.rows {
            while self.segments.len() <= *segment as usize {
                if self.segments.len() == self.max_segments {
                    return Err(self.segments.len() as u32);
                }
                self.segments.push(vec![0; self.limits.segment as usize]);
            }
            let first = (segment * self.limits.segment + write.first) * 2;
            let end = first + write.values.len() as u32 * 2;
            let taken = reachable
                .iter()
                .any(|(low, high)| *low < end && first < *high);
            assert!(!taken, "rows that are in use are overwritten");
            let values = self.segments[*segment as usize].iter_mut();
            for (slot, value) in values.skip(write.first as usize).zip(&write.values) {
                *slot = *value;
            }
        }
        let first = placement.pages.first as usize;
        self.pages[first..first + placement.pages.values.len()]
            .copy_from_slice(&placement.pages.values);
        Ok(())
    }

    fn publish(&mut self, file: FileKey, table: TableRef) -> bool {
        if let Some(index) = (table.python as usize).checked_sub(1) {
            assert!(self.pythons[index].is_some(), "it is not written yet");
        }
        self.names.insert(file, table);
        true
    }

    fn unpublish(&mut self, file: FileKey) {
        self.in_use.extend(self.names.remove(&file));
    }

    fn rule(&self, table: TableRef, at: u64) -> Rule {
        self.lookup(table, at).unwrap_or(Rule::NONE)
    }

    fn wait_for_walks(&mut self) {
        self.in_use.clear();
        self.waits += 1;
    }

    fn set_clock(&mut self, now: u64) {
        self.uses[0] = now;
    }

    fn last_use(&self, slot: u32) -> u64 {
        self.uses[slot as usize]
    }

    fn record_use(&mut self, slot: u32, now: u64) {
        self.uses[slot as usize] = now;
    }
}

const LIMITS: StoreLimits = StoreLimits {
    slots: 10_000,
    segment: 3_000,
    pages: 200,
    rules: 2_000,
    tables: 50,
    pythons: 2,
    v8s: 2,
};

fn file(inode: u64) -> FileKey {
    FileKey {
        inode,
        device: 1,
        version: 1,
    }
}

/// The first pages of a table.
fn part(table: &Table, pages: usize) -> Table {
    let pages = table.pages[..=pages.min(table.pages.len() - 1)].to_vec();
    let rows = *pages.last().unwrap() as usize;
    Table {
        rows: table.rows[..rows].to_vec(),
        pages,
        ..table.clone()
    }
}

/// A large and a small table: one as large programs have, and a real one.
fn tables() -> [Table; 2] {
    const PAGES: u32 = 60;
    const ROWS: u32 = 500;
    const RULES: u16 = 700;
    let mut random = Random(3);
    let rules = (0..RULES).map(|number| Rule {
        cfa_offset: i32::from(number) * 8,
        ..Rule::SIGNAL
    });
    let rows = (0..PAGES * ROWS).map(|index| {
        // A random offset in the row's share of the page; the first row is at the beginning.
        let share = (1 << PAGE_BITS) / ROWS;
        let (number, within) = (index % ROWS, random.below(share as usize) as u32);
        let offset = if number == 0 {
            0
        } else {
            number * share + within
        };
        pack_row(offset as u16, random.below(RULES.into()) as u16)
    });
    let large = Table {
        rows: rows.collect(),
        pages: (0..=PAGES).map(|page| page * ROWS).collect(),
        rules: std::iter::once(Rule::NONE).chain(rules.skip(1)).collect(),
        first_page: 1,
        damaged: 0,
        python: None,
        v8: None,
    };
    let small = build(vdso().as_slice(), &Limits::default()).unwrap();
    [large, small]
}

fn loader(limits: StoreLimits) -> Loader<Memory> {
    Loader::new(Memory::new(limits), limits)
}

/// Check that no reachable table is ever overwritten, and that each published table gives its own rules, through many random
/// loads, uses, removals and pauses.
#[test]
fn reachable_tables_are_never_overwritten() {
    let [large, small] = tables();
    let kinds: Vec<Table> = [1, 2, 3, 5, 8, 40]
        .map(|pages| part(&large, pages))
        .into_iter()
        .chain([small])
        .collect();
    assert!(kinds.iter().all(Table::is_sound));
    let mut loader = loader(LIMITS);
    let mut random = Random(7);
    let mut expected: HashMap<FileKey, usize> = HashMap::new();
    let (mut now, mut refused, mut most) = (1, 0, 0);
    for _ in 0..4_000 {
        let key = FileKey {
            version: random.next() % 2,
            ..file(random.next() % 60)
        };
        match random.below(10) {
            0 => {
                loader.forget(key);
                expected.remove(&key);
            }
            1..4 => {
                now += random.next() % 4;
                loader.tick(now);
            }
            4 => {
                if let Some(State::Loaded(slot)) = loader.states().get(key) {
                    loader.arrays().record_use(slot, now);
                }
            }
            _ if loader.states().get(key).is_none() => {
                let kind = random.below(kinds.len());
                // Some files have the content of others.
                let fingerprint = [(kind * 2 + random.below(2)) as u8; 32];
                match loader.load(key, &fingerprint, &kinds[kind]) {
                    Ok(()) => {
                        expected.insert(key, kind);
                    }
                    Err(_) => refused += 1,
                }
            }
            _ => {}
        }
        let names = loader.arrays().names.clone();
        let loaded = names.iter().filter(|(_, it)| it.state == table::LOADED);
        most = most.max(loaded.clone().count());
        for (key, table) in loaded {
            let kind = &kinds[expected[key]];
            loader.arrays().assert_same(*table, kind, &mut random);
        }
    }
    assert!(loader.evicted() > 100, "{}", loader.evicted());
    assert!(refused > 10 && most > 5, "{refused} {most}");
    assert!(loader.arrays().segments.len() == 4);
}

/// Check that the least recently used table is evicted, that its file can be requested again, and that all walks by it have
/// ended before its space is reused.
#[test]
fn the_least_recently_used_table_is_evicted() {
    let [large, _] = tables();
    let one = part(&large, 1);
    let slots = one.rows.len().div_ceil(2) as u32;
    let limits = StoreLimits {
        slots: 3 * slots,
        segment: 3 * slots,
        ..LIMITS
    };
    let mut loader = loader(limits);
    for inode in 1..=3 {
        loader.load(file(inode), &[inode as u8; 32], &one).unwrap();
    }
    loader.tick(20);
    for inode in [1, 3] {
        let Some(State::Loaded(slot)) = loader.states().get(file(inode)) else {
            panic!("{inode} is gone");
        };
        loader.arrays().record_use(slot, 20);
    }
    loader.tick(21);
    loader.load(file(4), &[4; 32], &one).unwrap();
    assert_eq!(loader.states().get(file(2)), None);
    assert!(!loader.arrays().names.contains_key(&file(2)));
    assert_eq!((loader.evicted(), loader.arrays().waits), (1, 1));
    // All other tables are in use: a new one evicts none of them, and may be requested again later.
    let refused = loader.load(file(5), &[5; 32], &one);
    assert_eq!(refused, Err(NoRoom::Full));
    assert_eq!(loader.arrays().names[&file(5)].state, table::ABSENT);
    loader.tick(60);
    assert_eq!(loader.states().get(file(5)), None);
    assert_eq!(loader.load(file(5), &[5; 32], &one), Ok(()));
}

/// Check that a table that could never fit evicts no other one, and that a table without memory for its segment is refused and
/// uses no space.
#[test]
fn tables_without_room_are_refused() {
    let [large, small] = tables();
    let mut loader = loader(LIMITS);
    loader.load(file(1), &[1; 32], &small).unwrap();
    loader.tick(100);
    assert!(large.rows.len() / 2 > LIMITS.slots as usize);
    let refused = loader.load(file(2), &[2; 32], &large);
    assert_eq!(refused, Err(NoRoom::TooLarge));
    assert_eq!(loader.evicted(), 0);

    loader.arrays().max_segments = 1;
    let mut parts = (1..40).map(|pages| part(&large, pages));
    let many = parts
        .find(|it| it.rows.len() / 2 > LIMITS.segment as usize)
        .unwrap();
    let refused = loader.load(file(3), &[3; 32], &many);
    assert_eq!(refused, Err(NoRoom::TooLarge));
    assert_eq!(loader.load(file(4), &[4; 32], &small), Ok(()));

    let few_rules = StoreLimits { rules: 3, ..LIMITS };
    let mut loader = self::loader(few_rules);
    let refused = loader.load(file(1), &[1; 32], &small);
    assert_eq!(refused, Err(NoRoom::Rules));
}

/// Check that one owner's tables use at most half of the slots and a quarter of the rules, and that the owner's own idle
/// tables are evicted for a new one.
#[test]
fn an_owner_has_a_share() {
    let [large, small] = tables();
    let half = part(&large, 3);
    let owner = |user| FileOwner { user, device: 1 };
    let limits = StoreLimits {
        slots: 2 * half.rows.len() as u32,
        segment: half.rows.len() as u32,
        rules: 40_000,
        ..LIMITS
    };
    let mut loader = loader(limits);
    let load = |loader: &mut Loader<Memory>, user, n: u8, table: &Table| {
        loader.load_of(owner(user), file(n.into()), &[n; 32], table)
    };
    // A table uses half as many slots as it has rows: a quarter of all slots.
    assert_eq!(load(&mut loader, 7, 1, &half), Ok(()));
    let second = Table {
        damaged: 1,
        ..half.clone()
    };
    let mut refused = Ok(());
    for n in 2..10 {
        refused = load(&mut loader, 7, n, &second);
        if refused.is_err() {
            break;
        }
    }
    assert_eq!(refused, Err(NoRoom::Share));
    assert_eq!(load(&mut loader, 8, 20, &half), Ok(()));
    loader.tick(1000);
    assert_eq!(load(&mut loader, 7, 30, &second), Ok(()));
    assert!(loader.evicted() > 0);
    let few_rules = StoreLimits {
        rules: 4 * small.rules.len() as u32 - 8,
        ..limits
    };
    let mut loader = self::loader(few_rules);
    assert_eq!(load(&mut loader, 7, 1, &small), Err(NoRoom::Share));
}

/// Check that a new version of a file replaces the old one, and that files with the same content share a table.
#[test]
fn a_file_has_one_version_at_a_time() {
    let [large, small] = tables();
    let one = part(&large, 1);
    let mut loader = loader(LIMITS);
    loader.load(file(1), &[1; 32], &one).unwrap();
    loader.load(file(2), &[1; 32], &one).unwrap();
    assert!(loader.share(file(3), &[1; 32]));
    assert!(!loader.share(file(4), &[4; 32]));
    let names = &loader.arrays().names;
    assert_eq!(names[&file(1)], names[&file(2)]);
    let newer = FileKey {
        version: 2,
        ..file(1)
    };
    loader.load(newer, &[2; 32], &small).unwrap();
    assert_eq!(loader.states().get(file(1)), None);
    let names = &loader.arrays().names;
    assert!(!names.contains_key(&file(1)) && names.contains_key(&file(2)));
    assert_ne!(names[&newer], names[&file(2)]);
}

/// Check that the number of known files stays below its limit.
#[test]
fn known_files_are_limited() {
    let [_, small] = tables();
    let mut loader = loader(LIMITS);
    loader.load(file(0), &[1; 32], &small).unwrap();
    for inode in 1..3 * MAX_FILES as u64 {
        loader.set_absent(file(inode));
    }
    assert!(loader.arrays().names.len() <= MAX_FILES);
    assert!(loader.arrays().names.contains_key(&file(0)));
    for inode in 0..3 * MAX_FILES as u64 {
        assert!(loader.share(file(inode), &[1; 32]) || inode >= MAX_FILES as u64);
    }
    assert!(loader.arrays().names.len() <= MAX_FILES);
}

/// Check that the interpreter in a file is published before its table, that the table then has the same one, and that it is not published
/// again for a file whose state is known.
#[test]
fn interpreters_are_announced() {
    let [_, small] = tables();
    let image = PythonImage {
        key_at: 1,
        loops: [[1, 2], [0, 0]],
        layout: crate::python::layout(12).unwrap(),
    };
    let mut loader = loader(LIMITS);
    loader.announce(file(1), image);
    let announced = loader.arrays().names[&file(1)];
    assert_eq!((announced.state, announced.python), (table::REQUESTED, 1));
    assert_eq!(loader.states().get(file(1)), None);
    let with_it = Table {
        python: Some(image),
        ..small
    };
    loader.load(file(1), &[1; 32], &with_it).unwrap();
    let loaded = loader.arrays().names[&file(1)];
    assert_eq!((loaded.state, loaded.python), (table::LOADED, 1));
    loader.set_absent(file(2));
    loader.announce(file(1), image);
    loader.announce(file(2), image);
    let states = [1, 2].map(|inode| loader.arrays().names[&file(inode)].state);
    assert_eq!(states, [table::LOADED, table::ABSENT]);
}
