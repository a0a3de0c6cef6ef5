//! Reads facts about an ELF file, and checks its sizes before a symbolizer reads it.
//!
//! Stage: symbolize. Runs in a reader. The file may be malicious: it is read in small pieces, every size is limited, and no
//! file that it refers to is opened here. Must not know symbols.

use std::fs::File;
use std::io::{self, BufRead, Read, Seek, SeekFrom};

use object::elf::{FileHeader32, FileHeader64, NT_GNU_BUILD_ID, PT_LOAD};
use object::read::elf::{
    CompressionHeader as _, FileHeader, ProgramHeader as _, SectionHeader as _,
};
use object::read::{FileKind, ReadCache};
use object::{Endianness, elf};

use crate::proc::build_id::MAX_BYTES;

/// The largest file that is read.
const MAX_FILE: u64 = 16 << 30;

/// Most program or section headers.
const MAX_HEADERS: u32 = 1 << 16;

/// Most bytes of a note, or of a section that names a debug file.
const MAX_SMALL: u64 = 64 << 10;

/// Most bytes of symbol tables. The symbolizer builds an index of half their size in memory.
const MAX_SYMBOLS: u64 = 2 << 30;

/// Most bytes of all compressed sections of a file after decompression. The symbolizer holds them in memory beside its
/// index of symbols, so the limit must be well below the reader's memory limit: a reader that runs out of memory ends.
pub(super) const MAX_INFLATED: u64 = 2 << 30;

/// A part of a file that is loaded at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    offset: u64,
    size: u64,
    address: u64,
}

/// A reference to the file with a stripped file's debug information.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DebugLink {
    /// The name of that file, without a folder.
    pub(super) name: String,
    /// The checksum of that file's content.
    pub(super) crc: u32,
}

/// Facts about an ELF file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ElfFacts {
    /// GNU build id; empty if the file has none.
    pub(super) build_id: Vec<u8>,
    /// Whether it has DWARF of its own.
    pub(super) has_dwarf: bool,
    /// Whether it refers to another file that a DWARF reader would open.
    pub(super) names_files: bool,
    /// The debug file that it refers to.
    pub(super) debug_link: Option<DebugLink>,
    /// The path of the supplementary file that it shares with other debug files, and that file's build id.
    pub(super) alt_link: Option<(String, Vec<u8>)>,
    /// Whether it has compressed sections.
    pub(super) compressed: bool,
    /// Whether it has the table of addresses for debug information in other files. Some compilers make it for their own, too.
    pub(super) has_address_table: bool,
    /// Whether it has a compressed table of symbols (mini debuginfo).
    pub(super) has_packed_symbols: bool,
    segments: Vec<Segment>,
    symbol_bytes: u64,
    inflated_bytes: u64,
}

impl ElfFacts {
    /// Reads the facts. `None` if the file is not an ELF file, is damaged, or exceeds a limit.
    pub(crate) fn read(file: &File) -> Option<Self> {
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
        // By sections, not segments: a debug file has the headers of its segments, but not always their content.
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
                // The size in the header can be wrong, and a symbolizer would decompress all that follows.
                if inflated <= MAX_INFLATED {
                    let content = Compressed {
                        kind: compression.ch_type(endian),
                        offset,
                        size,
                    };
                    if !content.inflates_to(&mut file, inflated).unwrap_or(false) {
                        return None;
                    }
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
                b".gnu_debugdata" => facts.has_packed_symbols = true,
                b".debug_addr" => facts.has_address_table = true,
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

    /// Whether its DWARF can be read without a file that it refers to.
    pub(super) fn is_self_contained(&self) -> bool {
        self.has_dwarf && !self.names_files
    }

    /// Whether parts of its DWARF may be in other files, by unit.
    pub(super) fn may_have_parts(&self) -> bool {
        self.is_self_contained() && self.has_address_table
    }

    /// The size of all its compressed sections after decompression.
    pub(super) fn inflated_bytes(&self) -> u64 {
        self.inflated_bytes
    }

    /// The link-time address of a file offset.
    pub(crate) fn address(&self, offset: u64) -> Option<u64> {
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

/// The checksum of a whole file, of the kind that debug links contain.
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

/// The content of a compressed section.
struct Compressed {
    kind: elf::CompressionType,
    offset: u64,
    size: u64,
}

impl Compressed {
    /// Whether it decompresses to exactly the size in its header. Content of unknown kinds does not.
    fn inflates_to(&self, file: &mut &File, inflated: u64) -> io::Result<bool> {
        file.seek(SeekFrom::Start(self.offset))?;
        let content = io::BufReader::new(file.take(self.size));
        let Some(content) = decoder(self.kind, content)? else {
            return Ok(false);
        };
        let limit = inflated.saturating_add(1);
        let length = io::copy(&mut content.take(limit), &mut io::sink())?;
        Ok(length == inflated)
    }
}

/// Decompresses the content of a section; `None` for an unknown kind.
pub(super) fn decoder<'c>(
    kind: elf::CompressionType,
    content: impl BufRead + 'c,
) -> io::Result<Option<Box<dyn Read + 'c>>> {
    Ok(match kind {
        elf::ELFCOMPRESS_ZLIB => Some(Box::new(flate2::bufread::ZlibDecoder::new(content))),
        elf::ELFCOMPRESS_ZSTD => Some(Box::new(zstd::Decoder::with_buffer(content)?)),
        _ => None,
    })
}

/// Parses a debug link. A name with a folder in it is refused, because it could lead anywhere.
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

/// Parses the path of the supplementary file, which the file's build id follows. Only an absolute path is accepted.
fn alt_link(data: &[u8]) -> Option<(String, Vec<u8>)> {
    let end = data.iter().position(|byte| *byte == 0)?;
    let (path, rest) = data.split_at(end);
    let path = std::str::from_utf8(path).ok()?;
    let build_id = rest.get(1..)?;
    let is_sound = path.starts_with('/') && (1..=MAX_BYTES).contains(&build_id.len());
    is_sound.then(|| (path.to_owned(), build_id.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a debug link can't lead out of the searched folders.
    #[test]
    fn malicious_debug_links_are_refused() {
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

    /// Check the facts of this program, and that its build id is the one that `readelf` shows.
    #[test]
    fn facts_of_this_program_are_right() {
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

    /// Check that a file that is not an ELF file has no facts.
    #[test]
    fn other_files_have_no_facts() {
        let dir = tempfile::tempdir().unwrap();
        let text = dir.path().join("text");
        std::fs::write(&text, "#!/bin/sh\n").unwrap();
        assert_eq!(ElfFacts::read(&File::open(&text).unwrap()), None);
    }
}
