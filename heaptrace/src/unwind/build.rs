//! Builds the table of a file from its call frame information.
//!
//! Stage: unwind. The file is untrusted: limits bound work, time and memory, and functions with damaged information are
//! counted. Must not know processes or kernel maps.

use std::collections::HashMap;
use std::time::Duration;

use gimli::{
    CieOrFde, CommonInformationEntry, DebugFrame, EhFrame, LittleEndian, UnwindContext,
    UnwindOffset, UnwindSection,
};
use heaptrace_common::rows::{PAGE_BITS, pack_row};
use heaptrace_common::unwind::Rule;
use object::read::ReadRef;

use super::image::{FrameSection, Image};
use super::rule::{Bytes, compact};
use super::table::{Limits, Table, TableError};
use crate::sys;

/// Builds the table of a file.
pub fn build<'data, R: ReadRef<'data>>(data: R, limits: &Limits) -> Result<Table, TableError> {
    from_image(&Image::read(data, limits.section_bytes)?, limits)
}

/// Builds the table of a file whose headers and sections were read.
///
/// `.debug_frame` fills the gaps of `.eh_frame`. A program that was compiled without `.eh_frame` still has a little of it,
/// from the C library's start files.
pub(super) fn from_image(image: &Image<'_>, limits: &Limits) -> Result<Table, TableError> {
    let (base, first_page) = code_start(image)?;
    let deadline = Deadline::after(limits.time);
    let section = |kind| {
        let mut sections = image.frames.iter().filter(move |(other, _)| *other == kind);
        sections.next().map(|(_, bytes)| &**bytes)
    };
    let eh_frame = section(FrameSection::EhFrame).map(|bytes| EhFrame::new(bytes, LittleEndian));
    let debug_frame = section(FrameSection::DebugFrame).map(|bytes| {
        let mut section = DebugFrame::new(bytes, LittleEndian);
        section.set_address_size(8);
        section
    });
    let mut eh_frame = eh_frame
        .as_ref()
        .map(|section| SectionReader::new(section, image, FrameSection::EhFrame, deadline));
    let mut debug_frame = debug_frame
        .as_ref()
        .map(|section| SectionReader::new(section, image, FrameSection::DebugFrame, deadline));
    let mut functions = Vec::new();
    if let Some(reader) = &mut eh_frame {
        functions = sorted(reader.functions(base, limits)?);
    }
    if let Some(reader) = &mut debug_frame {
        let mut others = reader.functions(base, limits)?;
        others.retain(|function| !overlaps(&functions, function));
        if !others.is_empty() {
            functions.extend(others);
            functions = sorted(functions);
        }
    }
    if functions.is_empty() {
        return Err(TableError::Missing);
    }
    let mut writer = TableWriter::new(limits.rows);
    let mut context = UnwindContext::new();
    for (index, function) in functions.iter().enumerate() {
        let next = functions.get(index + 1).map(|next| next.start);
        let end = next.map_or(function.end, |next| next.min(function.end));
        match (function.section, &mut eh_frame, &mut debug_frame) {
            (FrameSection::EhFrame, Some(reader), _) => {
                reader.rows(*function, end, &mut context, &mut writer)?;
            }
            (FrameSection::DebugFrame, _, Some(reader)) => {
                reader.rows(*function, end, &mut context, &mut writer)?;
            }
            _ => {}
        }
        if next != Some(end) {
            writer.put(end, Rule::NONE)?;
        }
    }
    let damaged = [
        eh_frame.map_or(0, |reader| reader.damaged),
        debug_frame.map_or(0, |reader| reader.damaged),
    ];
    if writer.rows.is_empty() {
        // There are functions, but none has a rule.
        return Err(TableError::Missing);
    }
    Ok(Table {
        python: image.python,
        v8: image.v8,
        ..writer.finish(first_page, damaged.iter().sum())
    })
}

/// Sorts functions by their start. If several start at one address, the first is used, as in a search by address.
fn sorted(mut functions: Vec<Function>) -> Vec<Function> {
    functions.sort_unstable_by_key(|function| (function.start, function.section, function.entry));
    functions.dedup_by_key(|function| function.start);
    functions
}

/// Whether a function overlaps one of several sorted functions.
fn overlaps(functions: &[Function], other: &Function) -> bool {
    let behind = functions.partition_point(|function| function.start < other.end);
    let before = behind.checked_sub(1).and_then(|last| functions.get(last));
    before.is_some_and(|function| function.end > other.start)
}

/// The limit of this thread's processor time for a file.
#[derive(Clone, Copy)]
struct Deadline {
    until: Duration,
}

impl Deadline {
    fn after(limit: Duration) -> Self {
        Self {
            until: sys::thread_time().saturating_add(limit),
        }
    }

    fn check(self) -> Result<(), TableError> {
        if sys::thread_time() > self.until {
            return Err(TableError::TooSlow);
        }
        Ok(())
    }
}

/// Longest common information entry (CIE); a compiler writes 24 bytes. Each function that shares the CIE interprets it
/// again, so a long one would cost its length times the number of functions.
const MAX_CIE_BYTES: usize = 1 << 10;

/// Limit of interpreted bytes, as a multiple of the section's length. Functions share CIEs, but in real files never to this
/// degree.
const MAX_WORK_FACTOR: u64 = 4;

type Cies<'data> = HashMap<usize, CommonInformationEntry<Bytes<'data>>>;

/// A function: its code, relative to the table's first page, and its unwind information.
#[derive(Clone, Copy)]
struct Function {
    start: u32,
    end: u32,
    section: FrameSection,
    /// Offset of its entry in the section.
    entry: usize,
}

/// The start of a table: the file offset, and the page number.
fn code_start(image: &Image<'_>) -> Result<(u64, u32), TableError> {
    let (start, end) = image.span().ok_or(TableError::Missing)?;
    let base = start >> PAGE_BITS << PAGE_BITS;
    // Half of the range of a `u32`, so that no sum overflows.
    if end.saturating_sub(base) > 1 << 31 {
        return Err(TableError::TooLarge);
    }
    let first_page = u32::try_from(base >> PAGE_BITS).map_err(|_| TableError::TooLarge)?;
    Ok((base, first_page))
}

/// Entries or rows that are read between two checks of the time.
const BETWEEN_CHECKS: u32 = 256;

/// Reads the entries of a section.
struct SectionReader<'a, 'data, S> {
    section: &'a S,
    image: &'a Image<'data>,
    kind: FrameSection,
    cies: Cies<'a>,
    deadline: Deadline,
    /// Entries and rows that were read since the last check of the time.
    unchecked: u32,
    damaged: u32,
    /// Bytes that may still be interpreted.
    work: u64,
}

impl<'a, 'data, S> SectionReader<'a, 'data, S>
where
    S: UnwindSection<Bytes<'a>>,
    S::Offset: UnwindOffset<usize>,
{
    fn new(
        section: &'a S,
        image: &'a Image<'data>,
        kind: FrameSection,
        deadline: Deadline,
    ) -> Self {
        Self {
            section,
            image,
            kind,
            cies: Cies::new(),
            deadline,
            unchecked: 0,
            damaged: 0,
            work: MAX_WORK_FACTOR * section.section().len() as u64,
        }
    }

    fn check_time(&mut self) -> Result<(), TableError> {
        self.unchecked += 1;
        if self.unchecked < BETWEEN_CHECKS {
            return Ok(());
        }
        self.unchecked = 0;
        self.deadline.check()
    }

    /// The functions with code in the file, in the order of the section.
    fn functions(&mut self, base: u64, limits: &Limits) -> Result<Vec<Function>, TableError> {
        let mut functions = Vec::new();
        let mut entries = self.section.entries(&self.image.bases);
        loop {
            self.check_time()?;
            let partial = match entries.next() {
                Ok(Some(CieOrFde::Fde(partial))) => partial,
                Ok(Some(CieOrFde::Cie(_))) => continue,
                Ok(None) => break,
                Err(_) => {
                    self.damaged = self.damaged.saturating_add(1);
                    break;
                }
            };
            let entry = partial.offset();
            let Ok(function) = partial
                .parse(|section, bases, offset| read_cie(&mut self.cies, section, bases, offset))
            else {
                self.damaged = self.damaged.saturating_add(1);
                continue;
            };
            // A function that the linker discarded has address 0, or no length.
            let address = function.initial_address();
            let Some((offset, length)) = self.image.code(address, function.len()) else {
                continue;
            };
            if address == 0 {
                continue;
            }
            let start = offset.saturating_sub(base);
            let (Ok(start), Ok(end)) = (u32::try_from(start), u32::try_from(start + length)) else {
                continue;
            };
            if start == end {
                continue;
            }
            if functions.len() >= limits.functions {
                return Err(TableError::TooLarge);
            }
            functions.push(Function {
                start,
                end,
                section: self.kind,
                entry,
            });
        }
        Ok(functions)
    }

    /// Writes the rows of a function up to `end`.
    fn rows(
        &mut self,
        function: Function,
        end: u32,
        context: &mut UnwindContext<usize>,
        writer: &mut TableWriter,
    ) -> Result<(), TableError> {
        let bases = &self.image.bases;
        let entry =
            self.section
                .fde_from_offset(bases, function.entry.into(), |section, bases, offset| {
                    read_cie(&mut self.cies, section, bases, offset)
                });
        let mut at = function.start;
        let mut damaged = true;
        if let Ok(entry) = entry {
            let size = (entry.entry_len() as u64).saturating_add(entry.cie().entry_len() as u64);
            let first = entry.initial_address();
            self.work = self.work.checked_sub(size).ok_or(TableError::TooLarge)?;
            if let Ok(mut rows) = entry.rows(self.section, bases, context) {
                while let Ok(row) = rows.next_row() {
                    self.check_time()?;
                    let Some(row) = row else {
                        damaged = false;
                        break;
                    };
                    let within = row.start_address().saturating_sub(first);
                    let within = u32::try_from(within).unwrap_or(u32::MAX);
                    let start = function.start.saturating_add(within).max(at);
                    if start >= end {
                        damaged = false;
                        break;
                    }
                    if row.start_address() < row.end_address() {
                        writer.put(start, compact(row, self.section))?;
                    }
                    let size = row.end_address().saturating_sub(row.start_address());
                    let size = u32::try_from(size).unwrap_or(u32::MAX);
                    at = start.saturating_add(size);
                }
            }
        }
        if damaged {
            self.damaged = self.damaged.saturating_add(1);
            if at < end {
                writer.put(at, Rule::UNSUPPORTED)?;
            }
        }
        Ok(())
    }
}

/// A CIE, which is parsed once.
fn read_cie<'data, S: UnwindSection<Bytes<'data>>>(
    cies: &mut Cies<'data>,
    section: &S,
    bases: &gimli::BaseAddresses,
    offset: S::Offset,
) -> gimli::Result<CommonInformationEntry<Bytes<'data>>>
where
    S::Offset: UnwindOffset<usize>,
{
    let key = UnwindOffset::into(offset);
    if let Some(cie) = cies.get(&key) {
        return Ok(cie.clone());
    }
    let cie = section.cie_from_offset(bases, offset)?;
    if cie.entry_len() > MAX_CIE_BYTES {
        return Err(gimli::Error::OffsetOutOfBounds(0));
    }
    cies.insert(key, cie.clone());
    Ok(cie)
}

/// Collects rows in the order of their offsets.
struct TableWriter {
    pages: Vec<u32>,
    rows: Vec<u32>,
    rules: Vec<Rule>,
    indices: HashMap<Rule, u16>,
    /// The rule that applies after the last row.
    current: u16,
    max_rows: usize,
}

impl TableWriter {
    fn new(max_rows: usize) -> Self {
        let mut writer = Self {
            pages: Vec::new(),
            rows: Vec::new(),
            rules: Vec::new(),
            indices: HashMap::new(),
            current: 0,
            max_rows: max_rows.min(u32::MAX as usize - 1),
        };
        writer.intern(Rule::NONE);
        writer.intern(Rule::UNSUPPORTED);
        writer
    }

    /// The index of a rule. Once the table has the most rules that fit, the index of [`Rule::UNSUPPORTED`]. All of Debian has
    /// 4,000 rules.
    fn intern(&mut self, rule: Rule) -> u16 {
        if let Some(index) = self.indices.get(&rule) {
            return *index;
        }
        let Ok(index) = u16::try_from(self.rules.len()) else {
            return 1;
        };
        self.rules.push(rule);
        self.indices.insert(rule, index);
        index
    }

    /// Adds a row: a rule applies from this offset on. Each offset must be higher than all earlier ones.
    fn put(&mut self, at: u32, rule: Rule) -> Result<(), TableError> {
        let rule = self.intern(rule);
        if rule == self.current {
            return Ok(());
        }
        let (page, offset) = ((at >> PAGE_BITS) as usize, (at & 0xffff) as u16);
        while self.pages.len() <= page {
            self.pages.push(self.rows.len() as u32);
            if self.pages.len() <= page || offset != 0 {
                self.push(0, self.current)?;
            }
        }
        self.current = rule;
        self.push(offset, rule)
    }

    fn push(&mut self, offset: u16, rule: u16) -> Result<(), TableError> {
        if self.rows.len() >= self.max_rows {
            return Err(TableError::TooLarge);
        }
        self.rows.push(pack_row(offset, rule));
        Ok(())
    }

    fn finish(mut self, first_page: u32, damaged: u32) -> Table {
        self.pages.push(self.rows.len() as u32);
        Table {
            pages: self.pages,
            rows: self.rows,
            rules: self.rules,
            first_page,
            damaged,
            python: None,
            v8: None,
        }
    }
}
