//! The unwind table of a file: compact rows by file offset, built from its call frame information.
//!
//! Stage: unwind. The file is a traced process's and may be anything: work and memory are bounded
//! by limits, and what can't be understood is counted. It knows neither processes nor kernel maps.

use std::collections::HashMap;

use gimli::{
    CieOrFde, CommonInformationEntry, DebugFrame, EhFrame, LittleEndian, UnwindContext,
    UnwindOffset, UnwindSection,
};
use heaptrace_common::unwind::{PAGE_BITS, Rule, pack_row, row_offset, row_rule};
use object::read::ReadRef;

use super::image::{Form, Image};
use super::rule::{Bytes, compact};

/// How much a file's table may take to build.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most rows.
    pub rows: usize,
    /// Most functions.
    pub functions: usize,
    /// Most bytes of unwind information.
    pub section_bytes: u64,
}

impl Default for Limits {
    /// Enough for LLVM ten times over: it has 1.3 million rows, from 6 MiB. Information made to be slow
    /// takes up to 0.35 s a MiB.
    fn default() -> Self {
        Self {
            rows: 16 << 20,
            functions: 4 << 20,
            section_bytes: 64 << 20,
        }
    }
}

/// Why there is no table.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// It can't be read as an ELF file.
    #[error("it is no ELF file that can be read: {0}")]
    Elf(#[from] object::Error),
    /// It is another machine's, or nothing that is loaded to be run.
    #[error("it is not an x86-64 program or library")]
    Foreign,
    /// It has nothing to build a table from.
    #[error("it has no unwind information")]
    Missing,
    /// It has more than the limits allow.
    #[error("it has more unwind information than is read of one file")]
    TooLarge,
}

/// The unwind information of a file's code, compact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// For each 64-KiB page of the file from `first_page` on, the index of its first row; one more
    /// entry has the number of rows.
    pub pages: Vec<u32>,
    /// Rows, sorted by place within each page, with indices into `rules`. The first of each page is
    /// for its first byte. See [`pack_row`].
    pub rows: Vec<u32>,
    /// The distinct rules; the first is [`Rule::NONE`].
    pub rules: Vec<Rule>,
    /// Which page of the file the table begins with.
    pub first_page: u32,
    /// Functions whose unwind information is damaged, or more than is believed.
    pub damaged: u32,
}

/// The rule for a place in the file; `None` outside of the table.
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

/// Builds the table of a file.
pub fn build<'data, R: ReadRef<'data>>(data: R, limits: &Limits) -> Result<Table, TableError> {
    let image = Image::read(data, limits.section_bytes)?;
    for (form, bytes) in &image.frames {
        let functions = match form {
            Form::EhFrame => from_section(&EhFrame::new(bytes, LittleEndian), &image, limits),
            Form::DebugFrame => {
                let mut section = DebugFrame::new(bytes, LittleEndian);
                section.set_address_size(8);
                from_section(&section, &image, limits)
            }
        };
        match functions {
            Err(TableError::Missing) => {}
            other => return other,
        }
    }
    Err(TableError::Missing)
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
    entry: usize,
}

fn from_section<'data, S>(
    section: &S,
    image: &Image<'data>,
    limits: &Limits,
) -> Result<Table, TableError>
where
    S: UnwindSection<Bytes<'data>>,
    S::Offset: UnwindOffset<usize>,
{
    let (start, end) = image.span().ok_or(TableError::Missing)?;
    let base = start >> PAGE_BITS << PAGE_BITS;
    // Half of what fits, so that no sum overflows.
    if end.saturating_sub(base) > 1 << 31 {
        return Err(TableError::TooLarge);
    }
    let first_page = u32::try_from(base >> PAGE_BITS).map_err(|_| TableError::TooLarge)?;
    let mut reader = Reader {
        section,
        image,
        cies: Cies::new(),
        damaged: 0,
        work: MAX_WORK_FACTOR * section.section().len() as u64,
    };
    let mut functions = reader.functions(base, limits)?;
    if functions.is_empty() {
        return Err(TableError::Missing);
    }
    functions.sort_unstable_by_key(|function| (function.start, function.entry));
    // Of several at one place the first counts, as for those who search by address.
    functions.dedup_by_key(|function| function.start);
    let mut writer = Writer::new(limits.rows);
    let mut context = UnwindContext::new();
    for (index, function) in functions.iter().enumerate() {
        let next = functions.get(index + 1).map(|next| next.start);
        let end = next.map_or(function.end, |next| next.min(function.end));
        reader.rows(*function, end, &mut context, &mut writer)?;
        if next != Some(end) {
            writer.put(end, Rule::NONE)?;
        }
    }
    Ok(writer.finish(first_page, reader.damaged))
}

/// Reads the entries of a section.
struct Reader<'a, 'data, S> {
    section: &'a S,
    image: &'a Image<'data>,
    cies: Cies<'data>,
    damaged: u32,
    /// Bytes that may still be interpreted.
    work: u64,
}

impl<'data, S> Reader<'_, 'data, S>
where
    S: UnwindSection<Bytes<'data>>,
    S::Offset: UnwindOffset<usize>,
{
    /// The functions whose code is loaded from the file, in the section's order.
    fn functions(&mut self, base: u64, limits: &Limits) -> Result<Vec<Function>, TableError> {
        let mut functions = Vec::new();
        let mut entries = self.section.entries(&self.image.bases);
        loop {
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
            let Some((offset, length)) =
                self.image.code(function.initial_address(), function.len())
            else {
                continue;
            };
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
            functions.push(Function { start, end, entry });
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
