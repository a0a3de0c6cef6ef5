//! Unwind tables in the kernel's maps: built once per file, shared by all processes.
//!
//! Stage unwind. Rows, pages and rules are only ever added, and a table is named in the map of
//! tables only when all of it is in place, so that the kernel program never reads half a table.

use std::collections::{HashMap, HashSet};
use std::fs::File;

use anyhow::{Context as _, Result};
use heaptrace_common::unwind::{Rule, pack_row, row_offset, row_rule, slot_of_rows};
use heaptrace_common::wire::{FileKey, TableRef, table};

use super::files::MappedFile;
use super::memory::Memory;
use super::table::{Limits, Table, build};
use crate::probes::elf;
use crate::probes::program::{Program, TableMap};

/// Loads tables into the kernel's maps.
pub struct Loader {
    tables: TableMap,
    pages: Memory,
    rows: Memory,
    rules: Memory,
    /// How far pages and rows are filled.
    filled: (u32, u32),
    rule_ids: HashMap<Rule, u16>,
    /// Tables of files that are one and the same build under several inodes.
    by_build: HashMap<Vec<u8>, TableRef>,
    known: HashSet<FileKey>,
    /// Files whose tables found no place.
    refused: u64,
    /// Functions whose unwind information was not understood.
    damaged: u64,
}

impl Loader {
    /// With nothing loaded.
    pub fn new(program: &mut Program) -> Result<Self> {
        let image = |name| {
            let (fd, slots) = program.array(name)?;
            Memory::map(fd, slots).with_context(|| format!("can't map {name}"))
        };
        let (pages, rows, rules) = (image("PAGES")?, image("ROWS")?, image("RULES")?);
        Ok(Self {
            tables: program.take_tables()?,
            pages,
            rows,
            rules,
            filled: (0, 0),
            rule_ids: HashMap::new(),
            by_build: HashMap::new(),
            known: HashSet::new(),
            refused: 0,
            damaged: 0,
        })
    }

    /// Loads the table of a file. One that can't be loaded is said to be absent: its frames are
    /// followed by frame pointers.
    pub fn load(&mut self, mapped: &MappedFile) {
        let table = self.table(&mapped.file, &mapped.path);
        match self.tables.insert(mapped.key, table) {
            Ok(()) => {
                self.known.insert(mapped.key);
            }
            Err(error) => tracing::warn!("{}: {error:#}", mapped.path),
        }
    }

    /// Whether a file's table was loaded, or found absent.
    pub fn knows(&self, key: FileKey) -> bool {
        self.known.contains(&key)
    }

    /// Takes back that a file was asked for: it could not be opened, and may be another time.
    pub fn forget(&mut self, key: FileKey) {
        self.tables.remove(key);
    }

    /// Files whose tables found no place.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Functions whose unwind information was not understood.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    fn table(&mut self, file: &File, path: &str) -> TableRef {
        let absent = TableRef {
            state: table::ABSENT,
            pages_at: 0,
            pages: 0,
            first_page: 0,
        };
        let build_id = elf::build_id(file);
        if let Some(known) = self
            .by_build
            .get(&build_id)
            .filter(|_| !build_id.is_empty())
        {
            return *known;
        }
        let found = match build(&object::ReadCache::new(file), &Limits::default()) {
            Ok(built) => self.add(&built).unwrap_or_else(|| {
                tracing::warn!("{path}: no room for its unwind table");
                self.refused += 1;
                absent
            }),
            Err(error) => {
                tracing::debug!("{path}: {error}");
                absent
            }
        };
        self.by_build.insert(build_id, found);
        found
    }

    /// Adds a table; `None` where it does not fit.
    fn add(&mut self, built: &Table) -> Option<TableRef> {
        let (pages_at, rows_at) = self.filled;
        let pages_end = pages_at.checked_add(u32::try_from(built.pages.len()).ok()?)?;
        let rows_end = rows_at.checked_add(u32::try_from(built.rows.len()).ok()?)?;
        if pages_end as usize > self.pages.len() || rows_end as usize > self.rows.len() * 2 {
            return None;
        }
        let rules: Vec<u16> = built
            .rules
            .iter()
            .map(|rule| self.rule(*rule))
            .collect::<Option<_>>()?;
        for (at, row) in (rows_at..).zip(&built.rows) {
            let rule = rules.get(row_rule(*row) as usize).copied()?;
            self.set_row(at, pack_row(row_offset(*row) as u16, rule));
        }
        for (at, first) in (pages_at..).zip(&built.pages) {
            self.pages.set(at as usize, u64::from(rows_at + first));
        }
        self.filled = (pages_end, rows_end);
        self.damaged += u64::from(built.damaged);
        Some(TableRef {
            state: table::LOADED,
            pages_at,
            // The last entry only ends the last page.
            pages: (built.pages.len() as u32).saturating_sub(1),
            first_page: built.first_page,
        })
    }

    fn set_row(&mut self, at: u32, row: u32) {
        let slot = at as usize / 2;
        let (low, high) = (
            self.rows.get(slot) as u32,
            (self.rows.get(slot) >> 32) as u32,
        );
        let slot_value = if at & 1 == 0 {
            slot_of_rows(row, high)
        } else {
            slot_of_rows(low, row)
        };
        self.rows.set(slot, slot_value);
    }

    fn rule(&mut self, rule: Rule) -> Option<u16> {
        if let Some(id) = self.rule_ids.get(&rule) {
            return Some(*id);
        }
        let id = u16::try_from(self.rule_ids.len()).ok()?;
        self.rules.set(usize::from(id), rule_bits(rule));
        self.rule_ids.insert(rule, id);
        Some(id)
    }
}

/// A rule as it stands in memory.
fn rule_bits(rule: Rule) -> u64 {
    u64::from(rule.cfa)
        | u64::from(rule.bp) << 8
        | u64::from(rule.bp_offset as u16) << 16
        | u64::from(rule.cfa_offset as u32) << 32
}
