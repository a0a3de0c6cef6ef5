//! Builds ELF files that no linker makes: a page of callable code, and arbitrary sections.
//!
//! Part of hostile. It must not know the purpose of a file.

use std::fs::{self, File};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};

/// The offset of the code in the file and in memory, where zoo.c calls it.
pub(super) const CODE: u64 = 0x200;

/// Code with a frame pointer that calls the given function with the given size.
const CALLER: &[u8] = &[
    0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3,
];

/// The offset of the data behind the loaded page.
const BEHIND: u64 = 0x1000;

/// Section kinds.
pub(super) const PROGBITS: u32 = 1;
pub(super) const SYMTAB: u32 = 2;
pub(super) const STRTAB: u32 = 3;
pub(super) const RELA: u32 = 4;
pub(super) const NOTE: u32 = 7;
pub(super) const DYNSYM: u32 = 11;

/// Section flags.
pub(super) const ALLOCATED: u64 = 2;
pub(super) const COMPRESSED: u64 = 0x800;

/// A section.
#[derive(Clone, Debug, Default)]
pub(super) struct Section {
    pub(super) name: &'static str,
    pub(super) kind: u32,
    pub(super) flags: u64,
    pub(super) data: Vec<u8>,
    /// The size, if it is larger than the data. The rest is a hole in the file.
    pub(super) sparse: u64,
    /// The number of the linked section.
    pub(super) link: u32,
    pub(super) entry: u64,
}

/// An ELF file.
#[derive(Clone, Debug, Default)]
pub(super) struct Elf {
    /// The path of the loader that the file names.
    pub(super) interpreter: Option<Vec<u8>>,
    /// The code of the functions; `CALLER` if it is empty.
    pub(super) code: Vec<u8>,
    /// The sections from number 1 on.
    pub(super) sections: Vec<Section>,
}

impl Section {
    pub(super) fn new(name: &'static str, kind: u32, data: Vec<u8>) -> Self {
        Self {
            name,
            kind,
            data,
            ..Self::default()
        }
    }
}

impl Elf {
    pub(super) fn with(sections: Vec<Section>) -> Self {
        Self {
            sections,
            ..Self::default()
        }
    }

    /// A library that exports functions, given by name, address and size.
    pub(super) fn exporting(functions: &[(&str, u64, u64)]) -> Self {
        let (symbols, names) = symbols(functions);
        let dynamic = Section {
            flags: ALLOCATED,
            link: 2,
            entry: 24,
            ..Section::new(".dynsym", DYNSYM, symbols)
        };
        let strings = Section {
            flags: ALLOCATED,
            ..Section::new(".dynstr", STRTAB, names)
        };
        Self::with(vec![dynamic, strings])
    }

    /// Adds a build id.
    pub(super) fn with_build_id(mut self, id: &[u8]) -> Self {
        let mut note = Vec::new();
        for word in [4, id.len() as u32, 3] {
            note.extend(word.to_le_bytes());
        }
        note.extend(b"GNU\0");
        note.extend(id);
        note.resize(note.len().next_multiple_of(4), 0);
        self.sections
            .push(Section::new(".note.gnu.build-id", NOTE, note));
        self
    }

    /// Writes the file, and makes it executable.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let mut head = vec![0; CODE as usize];
        head.extend(if self.code.is_empty() {
            CALLER
        } else {
            &self.code
        });
        head.resize(head.len().max(BEHIND as usize), 0);
        let loaded = head.len() as u64;
        let mut headers = vec![0_u8; 64];
        let mut names = vec![0_u8];
        let mut body = Vec::new();
        let mut hole = 0;
        // Holes come last, one behind another, each behind its data.
        let mut end = 0;
        for section in self.sections.iter().filter(|it| it.sparse == 0) {
            body.resize(body.len().next_multiple_of(16), 0);
            let at = loaded + body.len() as u64;
            body.extend(&section.data);
            headers.extend(header(section, names.len(), at, section.data.len() as u64));
            names.extend(section.name.bytes().chain([0]));
        }
        let mut sparse = Vec::new();
        for section in self.sections.iter().filter(|it| it.sparse > 0) {
            hole += 1;
            sparse.push((section, names.len()));
            names.extend(section.name.bytes().chain([0]));
        }
        let own_name = names.len();
        names.extend(b".shstrtab\0");
        let names_at = loaded + body.len() as u64;
        body.extend(&names);
        body.resize(body.len().next_multiple_of(16), 0);
        let count = self.sections.len() as u64 + 2;
        let headers_at = loaded + body.len() as u64;
        let mut at = (headers_at + count * 64).next_multiple_of(4096);
        let mut parts = Vec::new();
        for (section, name) in sparse {
            headers.extend(header(section, name, at, section.sparse));
            parts.push((at, &section.data));
            at += section.sparse.next_multiple_of(4096);
            end = at;
        }
        let own = Section::new("", STRTAB, Vec::new());
        headers.extend(header(&own, own_name, names_at, names.len() as u64));
        body.extend(&headers);
        self.put_head(&mut head, headers_at, count);
        let context = || format!("cannot write {}", path.display());
        let mut file = File::create(path).with_context(context)?;
        file.write_all(&head)?;
        file.write_all(&body)?;
        for (at, data) in parts {
            file.seek(SeekFrom::Start(at))?;
            file.write_all(data)?;
        }
        if hole > 0 {
            file.set_len(end)?;
        }
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).with_context(context)
    }

    fn put_head(&self, head: &mut [u8], headers_at: u64, count: u64) {
        let loaded = head.len() as u64;
        let mut put = |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, b"\x7fELF\x02\x01\x01");
        // A shared library for x86-64.
        put(16, &[3, 0, 62, 0, 1, 0, 0, 0]);
        put(24, &CODE.to_le_bytes());
        put(32, &64_u64.to_le_bytes());
        put(40, &headers_at.to_le_bytes());
        let segments = 1 + u8::from(self.interpreter.is_some());
        let (number, last) = (count as u16, count as u16 - 1);
        put(52, &[64, 0, 56, 0, segments, 0, 64, 0]);
        put(60, &number.to_le_bytes());
        put(62, &last.to_le_bytes());
        // One executable segment with the whole head.
        put(64, &[1, 0, 0, 0, 5, 0, 0, 0]);
        put(96, &loaded.to_le_bytes());
        put(104, &loaded.to_le_bytes());
        put(112, &0x1000_u64.to_le_bytes());
        if let Some(name) = &self.interpreter {
            let at = 0x100_u64;
            put(at as usize, name);
            put(120, &[3, 0, 0, 0, 4, 0, 0, 0]);
            put(128, &at.to_le_bytes());
            put(136, &at.to_le_bytes());
            put(152, &(name.len() as u64).to_le_bytes());
            put(160, &(name.len() as u64).to_le_bytes());
        }
    }
}

fn header(section: &Section, name: usize, at: u64, size: u64) -> Vec<u8> {
    let mut header = Vec::with_capacity(64);
    header.extend((name as u32).to_le_bytes());
    header.extend(section.kind.to_le_bytes());
    let address = if section.flags & ALLOCATED == 0 {
        0
    } else {
        at
    };
    for number in [section.flags, address, at, size] {
        header.extend(number.to_le_bytes());
    }
    header.extend(section.link.to_le_bytes());
    // The index of the first global symbol.
    header.extend(1_u32.to_le_bytes());
    header.extend(8_u64.to_le_bytes());
    header.extend(section.entry.to_le_bytes());
    header
}

/// A symbol table of functions, and its strings.
pub(super) fn symbols(functions: &[(&str, u64, u64)]) -> (Vec<u8>, Vec<u8>) {
    let (mut table, mut names) = (vec![0; 24], vec![0]);
    for (name, address, size) in functions {
        table.extend((names.len() as u32).to_le_bytes());
        // A global function in the first section.
        table.extend([0x12, 0, 1, 0]);
        table.extend(address.to_le_bytes());
        table.extend(size.to_le_bytes());
        names.extend(name.bytes().chain([0]));
    }
    (table, names)
}

#[cfg(test)]
mod tests {
    use object::{Object as _, ObjectSection as _, ObjectSymbol as _};

    use super::*;

    /// Check that another ELF reader sees the built content, and that a hole uses no disk space.
    #[test]
    fn files_are_read_as_built() {
        use std::os::unix::fs::MetadataExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.so");
        let mut elf = Elf::exporting(&[("malloc", CODE, 14)]).with_build_id(&[7; 20]);
        elf.sections.push(Section {
            sparse: 1 << 30,
            ..Section::new(".debug_info", PROGBITS, vec![1])
        });
        elf.write(&path).unwrap();
        let meta = fs::metadata(&path).unwrap();
        assert!(meta.len() > 1 << 30 && meta.blocks() < 200);
        let file = File::open(&path).unwrap();
        let cache = object::ReadCache::new(&file);
        let image = object::File::parse(&cache).unwrap();
        assert_eq!(image.build_id().unwrap(), Some(&[7; 20][..]));
        let symbol = image.dynamic_symbols().next().unwrap();
        assert_eq!((symbol.name(), symbol.address()), (Ok("malloc"), CODE));
        let debug = image.section_by_name(".debug_info").unwrap();
        assert_eq!(debug.size(), 1 << 30);
    }
}
