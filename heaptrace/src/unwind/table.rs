//! The unwind table of a file: compact rows by file offset.
//!
//! Stage: unwind. Defines a table and when it is sound. Must not know how it is built, nor where it is loaded.

use std::time::Duration;

use heaptrace_common::rows::{PAGE_BITS, row_offset, row_rule};
use heaptrace_common::unwind::Rule;
use heaptrace_common::wire::{PythonImage, V8Image};

use crate::{python, v8};

/// Limits for the build of a file's table.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most rows.
    pub rows: usize,
    /// Most functions.
    pub functions: usize,
    /// Most bytes of unwind information.
    pub section_bytes: u64,
    /// Most processor time.
    pub time: Duration,
}

impl Default for Limits {
    /// Ten times as much as LLVM needs, which has 1.3 million rows from 6 MiB. Information that is made to be slow takes up
    /// to 0.35 s for each MiB, so the time limit stops it. The limit is processor time, not time on the clock: a file must
    /// not lose its table because the machine is busy.
    fn default() -> Self {
        Self {
            rows: 16 << 20,
            functions: 4 << 20,
            section_bytes: 64 << 20,
            time: Duration::from_secs(2),
        }
    }
}

/// Why there is no table.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// It can't be read as an ELF file.
    #[error("it can't be read as an ELF file: {0}")]
    Elf(#[from] object::Error),
    /// It is for another processor, or is neither a program nor a library.
    #[error("it is not an x86-64 program or library")]
    Foreign,
    /// It has no unwind information.
    #[error("it has no unwind information")]
    Missing,
    /// It has more than the limits allow.
    #[error("it has more unwind information than the limit for one file")]
    TooLarge,
    /// It takes longer than the limits allow.
    #[error("its unwind information takes too long to read")]
    TooSlow,
}

/// The unwind information of a file's code, in compact form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// For each 64-KiB page of the file from `first_page` on, the index of its first row. One more entry at the end has the
    /// number of rows.
    pub pages: Vec<u32>,
    /// Rows, sorted by offset within each page, with indices into `rules`. The first row of each page is for its first byte.
    /// See [`pack_row`](heaptrace_common::rows::pack_row).
    pub rows: Vec<u32>,
    /// The distinct rules; the first is [`Rule::NONE`].
    pub rules: Vec<Rule>,
    /// The page of the file at which the table begins.
    pub first_page: u32,
    /// The number of functions whose unwind information is damaged or exceeds a limit.
    pub damaged: u32,
    /// The Python interpreter in the file.
    pub python: Option<PythonImage>,
    /// V8 in the file.
    pub v8: Option<V8Image>,
}

impl Table {
    /// Whether the table has the form that the builder makes and the kernel program relies on. A table from a cache or a
    /// reader may have any content.
    pub fn is_sound(&self) -> bool {
        let rows_of = |pages: &[u32]| match *pages {
            [first, end] => self.rows.get(first as usize..end as usize),
            _ => None,
        };
        let sound = |rows: &[u32]| {
            rows.first().is_some_and(|row| row_offset(*row) == 0)
                && rows.is_sorted_by(|a, b| row_offset(*a) < row_offset(*b))
        };
        self.pages.len() >= 2
            && self.pages.first() == Some(&0)
            && self.pages.last().map(|end| *end as usize) == Some(self.rows.len())
            && self.rules.len() <= 1 << 16
            && self
                .pages
                .windows(2)
                .all(|pages| rows_of(pages).is_some_and(sound))
            && self
                .rows
                .iter()
                .all(|row| (row_rule(*row) as usize) < self.rules.len())
            && self.python.as_ref().is_none_or(python::is_sound)
            && self.v8.as_ref().is_none_or(v8::is_sound)
    }
}

/// The rule for an offset in the file; `None` outside of the table.
pub fn lookup(table: &Table, file_offset: u64) -> Option<Rule> {
    let page = (file_offset >> PAGE_BITS).checked_sub(u64::from(table.first_page))?;
    let page = usize::try_from(page).ok()?;
    let first = *table.pages.get(page)? as usize;
    let end = *table.pages.get(page.checked_add(1)?)? as usize;
    let rows = table.rows.get(first..end)?;
    let offset = (file_offset & 0xffff) as u32;
    let behind = rows.partition_point(|row| row_offset(*row) <= offset);
    let row = rows.get(behind.checked_sub(1)?)?;
    table.rules.get(row_rule(*row) as usize).copied()
}
