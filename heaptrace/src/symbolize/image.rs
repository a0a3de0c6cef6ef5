//! The sections of an ELF file, as a DWARF parser reads them.
//!
//! Stage: symbolize. Runs in a reader. The file is mapped, not copied, and a compressed section is decompressed when it is asked for.
//! [`ElfFacts`] has checked all sizes before. Must not know what is in a section.

use std::fs::File;
use std::io::Read as _;
use std::ops::Deref;
use std::sync::Arc;

use gimli::{CloneStableDeref, EndianReader, LittleEndian, SectionId, StableDeref};
use memmap2::Mmap;
use object::read::CompressionFormat;
use object::{Endianness, Object as _, ObjectSection as _, elf};

use super::elf::{ElfFacts, decoder};

/// Bytes of a file, shared by all that reads them.
#[derive(Clone, Debug)]
pub(crate) struct Bytes(Arc<Content>);

#[derive(Debug)]
enum Content {
    Mapped(Mmap),
    Inflated(Vec<u8>),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &*self.0 {
            Content::Mapped(mapped) => mapped,
            Content::Inflated(bytes) => bytes,
        }
    }
}

// SAFETY: the bytes are behind an `Arc` which nothing changes, so they stay where they are when a `Bytes` moves.
unsafe impl StableDeref for Bytes {}

// SAFETY: a clone has the same `Arc`, and so the same bytes.
unsafe impl CloneStableDeref for Bytes {}

/// A section, or a part of one.
pub(crate) type Section = EndianReader<LittleEndian, Bytes>;

/// A section in a file.
#[derive(Debug)]
struct Place {
    name: Vec<u8>,
    format: CompressionFormat,
    offset: u64,
    size: u64,
    /// Its size after decompression.
    inflated: u64,
}

/// A mapped ELF file.
#[derive(Debug)]
pub(crate) struct Image {
    file: Bytes,
    places: Vec<Place>,
    /// Bytes of memory that all of it needs at most.
    pub(crate) most_bytes: u64,
}

impl Image {
    /// Maps a file. `None` if it is no ELF file of this machine's byte order, or exceeds a limit.
    pub(crate) fn of(file: &File) -> Option<Self> {
        let facts = ElfFacts::read(file)?;
        // SAFETY: another process can change the file meanwhile. A reader has no rights, so wrong bytes only give wrong names; if the file
        // becomes shorter, the process ends.
        let mapped = unsafe { Mmap::map(file) }.ok()?;
        let length = mapped.len() as u64;
        let file = Bytes(Arc::new(Content::Mapped(mapped)));
        let parsed = object::File::parse(&*file).ok()?;
        if parsed.endianness() != Endianness::Little {
            return None;
        }
        let mut places = Vec::new();
        for section in parsed.sections() {
            let (Ok(name), Ok(range)) = (section.name_bytes(), section.compressed_file_range())
            else {
                continue;
            };
            places.push(Place {
                name: name.to_owned(),
                format: range.format,
                offset: range.offset,
                size: range.compressed_size,
                inflated: range.uncompressed_size,
            });
        }
        Some(Self {
            file,
            places,
            most_bytes: length.saturating_add(facts.inflated_bytes()),
        })
    }

    /// The whole file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.file
    }

    /// A section of DWARF; empty if the file does not have it.
    pub(crate) fn section(&self, id: SectionId) -> Section {
        self.named(id.name())
    }

    /// The same of a file with parts of another file's debug information.
    pub(super) fn part(&self, id: SectionId) -> Section {
        let Some(name) = id.dwo_name() else {
            return empty();
        };
        // An object file has a section for each type, so that linkers keep one of them.
        let sections = self.places.iter().filter(|it| it.name == name.as_bytes());
        let mut sections = sections.filter_map(|place| self.content(place));
        match (sections.next(), sections.next()) {
            (Some(only), None) => only,
            (Some(first), Some(second)) => {
                let mut bytes = [first.bytes(), second.bytes()].concat();
                for section in sections {
                    bytes.extend(section.bytes());
                }
                reader(Bytes(Arc::new(Content::Inflated(bytes))))
            }
            (None, _) => empty(),
        }
    }

    fn named(&self, name: &str) -> Section {
        let place = self.places.iter().find(|it| it.name == name.as_bytes());
        place
            .and_then(|place| self.content(place))
            .unwrap_or_else(empty)
    }

    fn content(&self, place: &Place) -> Option<Section> {
        let start = usize::try_from(place.offset).ok()?;
        let end = start.checked_add(usize::try_from(place.size).ok()?)?;
        let stored = self.file.get(start..end)?;
        let kind = match place.format {
            CompressionFormat::None => {
                return Some(reader(self.file.clone()).range(start..end));
            }
            CompressionFormat::Zlib => elf::ELFCOMPRESS_ZLIB,
            CompressionFormat::Zstandard => elf::ELFCOMPRESS_ZSTD,
            _ => return None,
        };
        let mut bytes = Vec::new();
        let mut content = decoder(kind, stored).ok()??.take(place.inflated);
        content.read_to_end(&mut bytes).ok()?;
        let is_whole = bytes.len() as u64 == place.inflated;
        is_whole.then(|| reader(Bytes(Arc::new(Content::Inflated(bytes)))))
    }
}

fn reader(bytes: Bytes) -> Section {
    EndianReader::new(bytes, LittleEndian)
}

/// A section without content.
pub(super) fn empty() -> Section {
    reader(Bytes(Arc::new(Content::Inflated(Vec::new()))))
}
