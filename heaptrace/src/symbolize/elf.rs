//! What an ELF file says of itself, read before a symbolizer is let near it.
//!
//! Stage: symbolize. Runs in a reader. The file may have been made to harm us: it is read in small pieces,
//! every size has a bound, and nothing it names is opened here. Knows nothing of symbols.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use object::elf::{FileHeader32, FileHeader64, NT_GNU_BUILD_ID, PT_LOAD};
use object::read::elf::{
    CompressionHeader as _, FileHeader, ProgramHeader as _, SectionHeader as _,
};
use object::read::{FileKind, ReadCache};
use object::{Endianness, elf};

/// Largest file that is looked at.
const MAX_FILE: u64 = 16 << 30;

/// Most program or section headers.
const MAX_HEADERS: u32 = 1 << 16;

/// Most bytes of a note, or of the name of a debug file.
const MAX_SMALL: u64 = 64 << 10;

/// Most bytes of symbol tables; an index of half their size is built in memory.
const MAX_SYMBOLS: u64 = 2 << 30;

/// Most bytes that the compressed sections of a file may have when they are decompressed.
const MAX_INFLATED: u64 = 4 << 30;

/// A part of a file that is loaded to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    offset: u64,
    size: u64,
    address: u64,
}

/// The file that has a stripped file's debug information.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DebugLink {
    /// Its name, without a folder.
    pub(super) name: String,
    /// The checksum of its content.
    pub(super) crc: u32,
}

/// What an ELF file says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ElfFacts {
    /// GNU build id; empty where there is none.
    pub(super) build_id: Vec<u8>,
    /// Whether it has DWARF of its own.
    pub(super) has_dwarf: bool,
    /// Whether it names another file that a reader of its DWARF would open.
    pub(super) names_files: bool,
    /// The debug file that it names.
    pub(super) debug_link: Option<DebugLink>,
    /// The path of what it shares with other debug files.
    pub(super) alt_link: Option<String>,
    /// Whether it has sections that are compressed.
    pub(super) compressed: bool,
    segments: Vec<Segment>,
    symbol_bytes: u64,
    inflated_bytes: u64,
}

impl ElfFacts {
    /// Reads them; `None` where that is no ELF file, or one that can't be right.
    pub(super) fn read(file: &File) -> Option<Self> {
        if file.metadata().ok()?.len() > MAX_FILE {
            return None;
        }
        let data = ReadCache::new(file);
        let facts = match FileKind::parse(&data).ok()? {
            FileKind::Elf64 => Self::parse::<FileHeader64<Endianness>>(file, &data)?,
            FileKind::Elf32 => Self::parse::<FileHeader32<Endianness>>(file, &data)?,
            _ => return None,
        };
        (facts.symbol_bytes <= MAX_SYMBOLS && facts.inflated_bytes <= MAX_INFLATED).then_some(facts)
    }

    fn parse<Elf: FileHeader<Endian = Endianness>>(
        mut file: &File,
        data: &ReadCache<&File>,
    ) -> Option<Self> {
        let mut facts = Self::default();
        let header = Elf::parse(data).ok()?;
        let endian = header.endian().ok()?;
        if header.phnum(endian, data).ok()? > MAX_HEADERS
            || header.shnum(endian, data).ok()? > MAX_HEADERS
        {
            return None;
        }
        for segment in header.program_headers(endian, data).ok()? {
            if segment.p_type(endian) == PT_LOAD {
                facts.segments.push(Segment {
                    offset: segment.p_offset(endian).into(),
                    size: segment.p_filesz(endian).into(),
                    address: segment.p_vaddr(endian).into(),
                });
            }
        }
        // Sections, not segments: a debug file keeps the headers of its segments, but not always
        // their content.
        let sections = header.sections(endian, data).ok()?;
        for section in sections.iter() {
            let size: u64 = section.sh_size(endian).into();
            let name = sections.section_name(endian, section).unwrap_or_default();
            if section.sh_type(endian) == elf::SHT_NOBITS {
                continue;
            }
            if let Ok(Some((compression, offset, size))) = section.compression(endian, data) {
                let inflated = compression.ch_size(endian).into();
                facts.compressed = true;
                // The header's word is not enough: a reader would inflate whatever there is.
                if compression.ch_type(endian) == elf::ELFCOMPRESS_ZLIB
                    && inflated <= MAX_INFLATED
                    && !inflates_within(&mut file, offset, size, inflated)
                {
                    return None;
                }
                facts.inflated_bytes = facts.inflated_bytes.saturating_add(inflated);
            }
            match section.sh_type(endian) {
                elf::SHT_SYMTAB | elf::SHT_DYNSYM => {
                    facts.symbol_bytes = facts.symbol_bytes.saturating_add(size);
                }
                elf::SHT_NOTE if size <= MAX_SMALL && facts.build_id.is_empty() => {
                    let mut notes = section.notes(endian, data).ok().flatten();
                    while let Some(Ok(Some(note))) = notes.as_mut().map(|notes| notes.next()) {
                        if note.name() == elf::ELF_NOTE_GNU
                            && note.n_type(endian) == NT_GNU_BUILD_ID
                        {
                            facts.build_id = note.desc().to_vec();
                        }
                    }
                }
                _ => {}
            }
            match name {
                b".debug_info" => facts.has_dwarf = true,
                b".gnu_debugaltlink" => {
                    facts.names_files = true;
                    if size <= MAX_SMALL {
                        facts.alt_link = section.data(endian, data).ok().and_then(alt_link);
                    }
                }
                b".debug_sup" => facts.names_files = true,
                b".gnu_debuglink" => {
                    facts.names_files = true;
                    if size <= MAX_SMALL {
                        facts.debug_link = section.data(endian, data).ok().and_then(debug_link);
                    }
                }
                _ => {}
            }
        }
        Some(facts)
    }

    /// The address that a file offset is linked at.
    pub(super) fn address(&self, offset: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let within = offset.checked_sub(segment.offset)?;
            (within < segment.size).then(|| segment.address.wrapping_add(within))
        })
    }

    /// The file offset of a link-time address.
    #[cfg(test)]
    pub(super) fn offset(&self, address: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let within = address.checked_sub(segment.address)?;
            (within < segment.size).then(|| segment.offset + within)
        })
    }
}

/// The checksum of a whole file, as a debug link has it.
pub(super) fn file_crc(mut file: &File) -> io::Result<u32> {
    file.seek(SeekFrom::Start(0))?;
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finalize()),
            n => hasher.update(&buffer[..n]),
        }
    }
}

/// Whether a compressed section has no more in it than it says.
fn inflates_within(file: &mut &File, offset: u64, size: u64, inflated: u64) -> bool {
    if file.seek(SeekFrom::Start(offset)).is_err() {
        return false;
    }
    let content = flate2::read::ZlibDecoder::new(io::BufReader::new(file.take(size)));
    let limit = inflated.saturating_add(1);
    io::copy(&mut content.take(limit), &mut io::sink()).is_ok_and(|n| n == inflated)
}

/// Parses a debug link. A name with a folder in it is none: it would lead anywhere.
fn debug_link(data: &[u8]) -> Option<DebugLink> {
    let end = data.iter().position(|byte| *byte == 0)?;
    let name = std::str::from_utf8(&data[..end]).ok()?;
    if name.is_empty() || name == "." || name == ".." || name.contains('/') {
        return None;
    }
    let crc = data.get((end + 1).next_multiple_of(4)..)?.first_chunk()?;
    Some(DebugLink {
        name: name.to_owned(),
        crc: u32::from_le_bytes(*crc),
    })
}

/// Parses the path before the build id of what is shared; none but a whole path is followed.
fn alt_link(data: &[u8]) -> Option<String> {
    let path = data.split(|byte| *byte == 0).next()?;
    let path = std::str::from_utf8(path).ok()?;
    path.starts_with('/').then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a debug link's name can't lead out of the folders that are searched.
    #[test]
    fn hostile_debug_links() {
        let link = |name: &str| {
            let mut data = format!("{name}\0").into_bytes();
            data.resize(data.len().next_multiple_of(4), 0);
            data.extend(7u32.to_le_bytes());
            debug_link(&data)
        };
        assert_eq!(
            link("libx.so.debug"),
            Some(DebugLink {
                name: "libx.so.debug".to_owned(),
                crc: 7
            })
        );
        for name in ["", ".", "..", "/etc/shadow", "../../x"] {
            assert_eq!(link(name), None, "{name}");
        }
        assert_eq!(debug_link(b"no end"), None);
        assert_eq!(debug_link(b"abc\0\x01\x02"), None);
    }

    /// Check the facts of a real library: its build id is the one that readelf shows.
    #[test]
    fn this_program() {
        let path = std::env::current_exe().unwrap();
        let facts = ElfFacts::read(&File::open(&path).unwrap()).unwrap();
        assert!(facts.has_dwarf && !facts.names_files && !facts.compressed);
        let readelf = std::process::Command::new("readelf")
            .arg("-n")
            .arg(&path)
            .output()
            .unwrap();
        let hex: String = facts.build_id.iter().map(|b| format!("{b:02x}")).collect();
        assert!(!hex.is_empty() && String::from_utf8_lossy(&readelf.stdout).contains(&hex));
    }

    /// Check that a file that is no ELF file has no facts.
    #[test]
    fn not_elf() {
        let dir = tempfile::tempdir().unwrap();
        let text = dir.path().join("text");
        std::fs::write(&text, "#!/bin/sh\n").unwrap();
        assert_eq!(ElfFacts::read(&File::open(&text).unwrap()), None);
    }
}
