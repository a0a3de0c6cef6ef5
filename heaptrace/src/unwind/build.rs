//! From a file's call frame information to its table.
//!
//! Stage: unwind. The file is a traced process's and may be anything: work, time and memory are bounded
//! by limits, and what can't be understood is counted. It knows neither processes nor kernel maps.

use std::collections::HashMap;
use std::time::Duration;

use gimli::{
    CieOrFde, CommonInformationEntry, DebugFrame, EhFrame, LittleEndian, UnwindContext,
    UnwindOffset, UnwindSection,
};
use heaptrace_common::rows::{PAGE_BITS, pack_row};
use heaptrace_common::unwind::Rule;
use object::read::ReadRef;

use super::image::{Form, Image};
use super::rule::{Bytes, compact};
use super::table::{Limits, Table, TableError};
use crate::sys;

/// Builds the table of a file.
pub fn build<'data, R: ReadRef<'data>>(data: R, limits: &Limits) -> Result<Table, TableError> {
    from_image(&Image::read(data, limits.section_bytes)?, limits)
}

/// Builds the table of a file whose headers and sections were read.
///
/// What is for debuggers fills the gaps of what is for exceptions: a program compiled without the
/// latter still has the little that the C library's start files bring along.
pub(super) fn from_image(image: &Image<'_>, limits: &Limits) -> Result<Table, TableError> {
    let (base, first_page) = place(image)?;
    let watch = Watch::start(limits.time);
    let section = |form| {
        let mut sections = image.frames.iter().filter(move |(other, _)| *other == form);
        sections.next().map(|(_, bytes)| &**bytes)
    };
    let eh_frame = section(Form::EhFrame).map(|bytes| EhFrame::new(bytes, LittleEndian));
    let debug_frame = section(Form::DebugFrame).map(|bytes| {
        let mut section = DebugFrame::new(bytes, LittleEndian);
        section.set_address_size(8);
        section
    });
    let mut eh_frame = eh_frame
        .as_ref()
        .map(|section| Reader::new(section, image, Form::EhFrame, watch));
    let mut debug_frame = debug_frame
        .as_ref()
        .map(|section| Reader::new(section, image, Form::DebugFrame, watch));
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
    let mut writer = Writer::new(limits.rows);
    let mut context = UnwindContext::new();
    for (index, function) in functions.iter().enumerate() {
        let next = functions.get(index + 1).map(|next| next.start);
        let end = next.map_or(function.end, |next| next.min(function.end));
        match (function.form, &mut eh_frame, &mut debug_frame) {
            (Form::EhFrame, Some(reader), _) => {
                reader.rows(*function, end, &mut context, &mut writer)?;
            }
            (Form::DebugFrame, _, Some(reader)) => {
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
        // There are functions, and nothing is said of any of them.
        return Err(TableError::Missing);
    }
    Ok(writer.finish(first_page, damaged.iter().sum()))
}

/// Functions in the order of their places. Of several at one place the first counts, as for those who
/// search by address.
fn sorted(mut functions: Vec<Function>) -> Vec<Function> {
    functions.sort_unstable_by_key(|function| (function.start, function.form, function.entry));
    functions.dedup_by_key(|function| function.start);
    functions
}

/// Whether a function shares code with one of several that are sorted.
fn overlaps(functions: &[Function], other: &Function) -> bool {
    let behind = functions.partition_point(|function| function.start < other.end);
    let before = behind.checked_sub(1).and_then(|last| functions.get(last));
    before.is_some_and(|function| function.end > other.start)
}

/// Says when a thread has worked too long on a file.
#[derive(Clone, Copy)]
struct Watch {
    until: Duration,
}

impl Watch {
    fn start(limit: Duration) -> Self {
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

/// Longest information that many functions share; a compiler writes 24 bytes. It is read again for
/// each function, so that a long one would cost its length times their number.
const MAX_SHARED_BYTES: usize = 1 << 10;

/// Bytes of unwind information interpreted at most, for each byte that there is. Functions may
/// share their information's first part, but real ones don't do it to this degree.
const MAX_WORK_FACTOR: u64 = 4;

type Cies<'data> = HashMap<usize, CommonInformationEntry<Bytes<'data>>>;

/// A function: where its code is, from the first page on, and its unwind information.
#[derive(Clone, Copy)]
struct Function {
    start: u32,
    end: u32,
    form: Form,
    entry: usize,
}

/// Where a table begins: the file offset, and the number of the page.
fn place(image: &Image<'_>) -> Result<(u64, u32), TableError> {
    let (start, end) = image.span().ok_or(TableError::Missing)?;
    let base = start >> PAGE_BITS << PAGE_BITS;
    // Half of what fits, so that no sum overflows.
    if end.saturating_sub(base) > 1 << 31 {
        return Err(TableError::TooLarge);
    }
    let first_page = u32::try_from(base >> PAGE_BITS).map_err(|_| TableError::TooLarge)?;
    Ok((base, first_page))
}

/// How many entries or rows are read before the time is looked at.
const BETWEEN_CHECKS: u32 = 256;

/// Reads the entries of a section.
struct Reader<'a, 'data, S> {
    section: &'a S,
    image: &'a Image<'data>,
    form: Form,
    cies: Cies<'a>,
    watch: Watch,
    /// Entries and rows that were read since the time was looked at.
    unchecked: u32,
    damaged: u32,
    /// Bytes that may still be interpreted.
    work: u64,
}

impl<'a, 'data, S> Reader<'a, 'data, S>
where
    S: UnwindSection<Bytes<'a>>,
    S::Offset: UnwindOffset<usize>,
{
    fn new(section: &'a S, image: &'a Image<'data>, form: Form, watch: Watch) -> Self {
        Self {
            section,
            image,
            form,
            cies: Cies::new(),
            watch,
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
        self.watch.check()
    }

    /// The functions whose code is loaded from the file, in the section's order.
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
                .parse(|section, bases, offset| cached(&mut self.cies, section, bases, offset))
            else {
                self.damaged = self.damaged.saturating_add(1);
                continue;
            };
            // What a linker threw away stands at address 0, or has no length.
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
                form: self.form,
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
        writer: &mut Writer,
    ) -> Result<(), TableError> {
        let bases = &self.image.bases;
        let entry =
            self.section
                .fde_from_offset(bases, function.entry.into(), |section, bases, offset| {
                    cached(&mut self.cies, section, bases, offset)
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

/// What functions share, read once.
fn cached<'data, S: UnwindSection<Bytes<'data>>>(
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
    if cie.entry_len() > MAX_SHARED_BYTES {
        return Err(gimli::Error::OffsetOutOfBounds(0));
    }
    cies.insert(key, cie.clone());
    Ok(cie)
}

/// Collects rows in the order of their places.
struct Writer {
    pages: Vec<u32>,
    rows: Vec<u32>,
    rules: Vec<Rule>,
    indices: HashMap<Rule, u16>,
    /// The rule that holds behind the last row.
    current: u16,
    max_rows: usize,
}

impl Writer {
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

    /// The index of a rule; of [`Rule::UNSUPPORTED`] once there are more than fit. All of Debian
    /// has 4,000.
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

    /// From a place on, which is behind all earlier ones, a rule holds.
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
        }
    }
}
