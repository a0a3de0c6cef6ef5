//! Reads symbols, code and data of an ELF file.
//!
//! No stage: runtimes are found with it. The file is untrusted: what is read at once has a bound. Must not know any runtime.

use std::collections::HashMap;

use object::elf::{
    DT_NEEDED, Dyn64, FileHeader64, PF_X, PT_DYNAMIC, PT_INTERP, PT_LOAD, ProgramHeader64,
    SHT_DYNSYM, SectionHeader64, SectionType, Sym64,
};
use object::read::elf::{
    Dyn as _, FileHeader as _, ProgramHeader as _, SectionHeader as _, SectionTable, Sym as _,
};
use object::read::{ReadRef, SectionIndex};

type Endian = object::LittleEndian;
const ENDIAN: Endian = object::LittleEndian;

/// Most bytes of a table of symbols, and of the names in it.
const MAX_TABLE: u64 = 64 << 20;

/// Most bytes of the list of needed libraries, and of the name of the loader.
const MAX_LIST: u64 = 1 << 16;

/// A function or variable: its address, and its size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Symbol {
    pub(crate) address: u64,
    pub(crate) size: u64,
}

/// A segment of code: its address, and its offset in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CodeSegment {
    address: u64,
    offset: u64,
}

impl CodeSegment {
    /// An address of the file, relative to the address at which the beginning of the file would be mapped with this segment.
    pub(crate) fn relative(self, address: u64) -> u64 {
        address.wrapping_sub(self.address).wrapping_add(self.offset)
    }
}

/// An ELF file.
pub(crate) struct Elf<'data, R: ReadRef<'data>> {
    data: R,
    segments: &'data [ProgramHeader64<Endian>],
    sections: SectionTable<'data, FileHeader64<Endian>, R>,
}

impl<'data, R: ReadRef<'data>> Elf<'data, R> {
    /// Reads the headers.
    pub(crate) fn parse(data: R) -> Option<Self> {
        let header = FileHeader64::<Endian>::parse(data).ok()?;
        Some(Self {
            data,
            segments: header.program_headers(ENDIAN, data).ok()?,
            sections: header.sections(ENDIAN, data).ok()?,
        })
    }

    /// Whether there is a section with this name.
    pub(crate) fn has_section(&self, name: &str) -> bool {
        self.sections
            .section_by_name(ENDIAN, name.as_bytes())
            .is_some()
    }

    /// The first table of symbols of this kind, and the names in it.
    fn table(&self, kind: SectionType) -> Option<(&'data [Sym64<Endian>], &'data [u8])> {
        let is_wanted = |section: &&SectionHeader64<Endian>| section.sh_type(ENDIAN) == kind;
        let table = self.sections.iter().find(is_wanted)?;
        let names = SectionIndex(table.sh_link(ENDIAN) as usize);
        let names = self.sections.section(names).ok()?;
        if table.sh_size(ENDIAN).max(names.sh_size(ENDIAN)) > MAX_TABLE {
            return None;
        }
        let symbols = table.data_as_array(ENDIAN, self.data).ok()?;
        Some((symbols, names.data(ENDIAN, self.data).ok()?))
    }

    /// Finds the symbols of a table with these names. All of the names begin with `prefix`, or with `_` and `prefix`: few
    /// other symbols of a file do.
    pub(crate) fn symbols(
        &self,
        kind: SectionType,
        prefix: &str,
        wanted: &[&'static str],
    ) -> HashMap<&'static str, Symbol> {
        let mut found = HashMap::new();
        let Some((symbols, names)) = self.table(kind) else {
            return found;
        };
        for symbol in symbols {
            let name = names.get(symbol.st_name(ENDIAN) as usize..);
            let name = name.unwrap_or_default();
            let plain = name.strip_prefix(b"_").unwrap_or(name);
            if !plain.starts_with(prefix.as_bytes()) || symbol.is_undefined(ENDIAN) {
                continue;
            }
            let is_name = |wanted: &&&'static str| {
                let rest = name.strip_prefix(wanted.as_bytes());
                rest.is_some_and(|rest| rest.first() == Some(&0))
            };
            if let Some(name) = wanted.iter().find(is_name) {
                found.entry(*name).or_insert(Symbol {
                    address: symbol.st_value(ENDIAN),
                    size: symbol.st_size(ENDIAN),
                });
            }
        }
        found
    }

    /// The loaded segments.
    fn loaded(&self) -> impl Iterator<Item = &'data ProgramHeader64<Endian>> {
        let segments = self.segments.iter();
        segments.filter(|segment| segment.p_type(ENDIAN) == PT_LOAD)
    }

    /// The content of the file at an address.
    pub(crate) fn bytes(&self, address: u64, size: u64) -> Option<&'data [u8]> {
        self.loaded().find_map(|segment| {
            let within = address.checked_sub(segment.p_vaddr(ENDIAN))?;
            let end = within.checked_add(size)?;
            let offset = segment.p_offset(ENDIAN).checked_add(within)?;
            let is_inside = end <= segment.p_filesz(ENDIAN);
            is_inside.then(|| self.data.read_bytes_at(offset, size).ok())?
        })
    }

    /// The segment with the code at an address.
    pub(crate) fn code_segment(&self, code: Symbol) -> Option<CodeSegment> {
        let mut code_segments = self
            .loaded()
            .filter(|segment| segment.p_flags(ENDIAN).contains(PF_X));
        let holds = |segment: &&ProgramHeader64<Endian>| {
            let within = code.address.checked_sub(segment.p_vaddr(ENDIAN));
            let end = within.and_then(|within| within.checked_add(code.size));
            end.is_some_and(|end| end <= segment.p_filesz(ENDIAN))
        };
        let segment = code_segments.find(holds)?;
        Some(CodeSegment {
            address: segment.p_vaddr(ENDIAN),
            offset: segment.p_offset(ENDIAN),
        })
    }

    /// Whether the file names musl: as the libc that it needs, or by its loader.
    pub(crate) fn names_musl(&self) -> bool {
        let is_short = |segment: &&ProgramHeader64<Endian>| segment.p_filesz(ENDIAN) <= MAX_LIST;
        let names = self.table(SHT_DYNSYM).map(|(_, names)| names);
        self.segments
            .iter()
            .filter(is_short)
            .any(|segment| match segment.p_type(ENDIAN) {
                PT_INTERP => {
                    let loader = segment.interpreter(ENDIAN, self.data).ok().flatten();
                    let mut windows = loader.unwrap_or_default().windows(7);
                    windows.any(|window| window == b"ld-musl")
                }
                PT_DYNAMIC => {
                    let entries = segment.dynamic(ENDIAN, self.data).ok().flatten();
                    let mut entries = entries.unwrap_or_default().iter();
                    entries.any(|entry| names.is_some_and(|names| needs_musl(entry, names)))
                }
                _ => false,
            })
    }
}

/// Whether an entry of the dynamic segment names musl as a needed library. Alpine gives musl a name of its own.
fn needs_musl(entry: &Dyn64<Endian>, names: &[u8]) -> bool {
    if entry.tag(ENDIAN) != DT_NEEDED {
        return false;
    }
    let name = usize::try_from(entry.val(ENDIAN)).ok();
    let name = name.and_then(|at| names.get(at..)).unwrap_or_default();
    name.starts_with(b"libc.musl-") || name.starts_with(b"libc.so\0")
}
