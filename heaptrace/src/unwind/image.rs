//! Reads the positions of code and the unwind information of an ELF file.
//!
//! Stage: unwind. The file is untrusted. Must not know unwind rules.

use std::borrow::Cow;
use std::io::Read;

use gimli::{BaseAddresses, EhFrameHdr, LittleEndian, Pointer};
use heaptrace_common::wire::{PythonImage, V8Image};
use object::elf::{
    CompressionHeader64, ELFCOMPRESS_ZLIB, ELFCOMPRESS_ZSTD, EM_X86_64, ET_DYN, ET_EXEC,
    FileHeader64, PF_X, PT_GNU_EH_FRAME, PT_LOAD, SHF_COMPRESSED, SHT_NOBITS,
};
use object::read::ReadRef;
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _};
use sha2::{Digest as _, Sha256};

use super::table::{Limits, TableError};
use crate::python::{self, Frames};
use crate::v8;

const ENDIAN: object::LittleEndian = object::LittleEndian;

/// A loaded part of the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) address: u64,
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) executable: bool,
}

impl Segment {
    /// The offset of an address in the segment.
    fn within(&self, address: u64) -> Option<u64> {
        let within = address.checked_sub(self.address)?;
        (within < self.size).then_some(within)
    }
}

/// A section with unwind information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FrameSection {
    EhFrame,
    DebugFrame,
}

/// The hash of all data from which a table is built. The build id can't replace it: a file can claim any build id.
pub(super) type Fingerprint = [u8; 32];

/// The version of the table builder. Incremented when the same file gives another table than before.
const BUILDER_VERSION: u64 = 3;

/// Largest window that a compressed section may ask for, as a power of two.
const MAX_WINDOW: u32 = 24;

/// All data from which a table is built.
pub(super) struct Image<'data> {
    /// The loaded segments.
    pub(super) segments: Vec<Segment>,
    /// The sections with unwind information, at most one of each kind, `.eh_frame` first.
    pub(super) frames: Vec<(FrameSection, Cow<'data, [u8]>)>,
    /// The addresses that encoded pointers are relative to.
    pub(super) bases: BaseAddresses,
    /// The Python interpreter in the file.
    pub(super) python: Option<PythonImage>,
    /// V8 in the file.
    pub(super) v8: Option<V8Image>,
    /// These addresses as a list: `.eh_frame`, `.eh_frame_hdr`, `.text`, `.got`.
    addresses: [Option<u64>; 4],
}

impl<'data> Image<'data> {
    /// Reads the headers, and sections of up to `max_section` bytes.
    pub(super) fn read<R: ReadRef<'data>>(data: R, max_section: u64) -> Result<Self, TableError> {
        let header = FileHeader64::<object::LittleEndian>::parse(data)?;
        let kind = header.e_type.get(ENDIAN);
        if !header.is_little_endian()
            || header.e_machine.get(ENDIAN) != EM_X86_64
            || (kind != ET_EXEC && kind != ET_DYN)
        {
            return Err(TableError::Foreign);
        }
        let mut image = Self {
            segments: Vec::new(),
            frames: Vec::new(),
            bases: BaseAddresses::default(),
            python: None,
            v8: None,
            addresses: [None; 4],
        };
        let mut frame_header = None;
        let length = data.len().unwrap_or(u64::MAX);
        for segment in header.program_headers(ENDIAN, data)? {
            let offset = segment.p_offset(ENDIAN);
            let found = Segment {
                address: segment.p_vaddr(ENDIAN),
                offset,
                size: segment.p_filesz(ENDIAN).min(length.saturating_sub(offset)),
                executable: segment.p_flags(ENDIAN).contains(PF_X),
            };
            match segment.p_type(ENDIAN) {
                PT_LOAD => image.segments.push(found),
                PT_GNU_EH_FRAME => frame_header = Some(found),
                _ => {}
            }
        }
        image.read_sections(header, data, max_section)?;
        if !image.has(FrameSection::EhFrame)
            && let Some(segment) = frame_header
        {
            image.read_by_frame_header(data, segment, max_section);
        }
        image.frames.sort_by_key(|(kind, _)| *kind);
        image.python = python::find(data, image.eh_frame());
        image.v8 = v8::find(data);
        Ok(image)
    }

    /// The hash of all data from which a table is built.
    pub(super) fn fingerprint(&self, limits: &Limits) -> Fingerprint {
        let mut hash = Sha256::new();
        let mut number = |number: u64| hash.update(number.to_le_bytes());
        number(BUILDER_VERSION);
        for limit in [limits.rows, limits.functions, self.segments.len()] {
            number(limit as u64);
        }
        number(u64::from(self.python.is_some()));
        number(u64::from(self.v8.is_some()));
        for segment in &self.segments {
            number(segment.address);
            number(segment.offset);
            number(segment.size);
            number(u64::from(segment.executable));
        }
        for address in self.addresses {
            number(address.unwrap_or(u64::MAX));
        }
        // The rest of an image follows from the version.
        for word in self.python.as_ref().map(python::to_words).iter().flatten() {
            number((*word).into());
        }
        for word in self.v8.as_ref().map(v8::to_words).iter().flatten() {
            number((*word).into());
        }
        for (kind, bytes) in &self.frames {
            hash.update((*kind as u64).to_le_bytes());
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        }
        hash.finalize().into()
    }

    /// The unwind information that shows where functions are.
    fn eh_frame(&self) -> Option<Frames<'_>> {
        match self.frames.first() {
            Some((FrameSection::EhFrame, bytes)) => Some(Frames {
                eh_frame: bytes,
                bases: &self.bases,
            }),
            _ => None,
        }
    }

    fn has(&self, kind: FrameSection) -> bool {
        self.frames.iter().any(|(other, _)| *other == kind)
    }

    fn set_bases(&mut self) {
        let [eh_frame, eh_frame_hdr, text, got] = self.addresses;
        let mut bases = BaseAddresses::default();
        for (address, set) in [
            (eh_frame, BaseAddresses::set_eh_frame as fn(_, _) -> _),
            (eh_frame_hdr, BaseAddresses::set_eh_frame_hdr),
            (text, BaseAddresses::set_text),
            (got, BaseAddresses::set_got),
        ] {
            if let Some(address) = address {
                bases = set(bases, address);
            }
        }
        self.bases = bases;
    }

    fn read_sections<R: ReadRef<'data>>(
        &mut self,
        header: &FileHeader64<object::LittleEndian>,
        data: R,
        max_section: u64,
    ) -> Result<(), TableError> {
        // A program can run without section headers, or with invalid ones.
        let Ok(sections) = header.sections(ENDIAN, data) else {
            return Ok(());
        };
        for section in sections.iter() {
            let Ok(name) = sections.section_name(ENDIAN, section) else {
                continue;
            };
            let address = section.sh_addr(ENDIAN);
            let base = match name {
                b".eh_frame" => Some(0),
                b".eh_frame_hdr" => Some(1),
                b".text" => Some(2),
                b".got" => Some(3),
                _ => None,
            };
            if let Some(base) = base.and_then(|base| self.addresses.get_mut(base)) {
                *base = Some(address);
            }
            let kind = match name {
                b".eh_frame" => FrameSection::EhFrame,
                b".debug_frame" => FrameSection::DebugFrame,
                _ => continue,
            };
            let (offset, size) = (section.sh_offset(ENDIAN), section.sh_size(ENDIAN));
            if section.sh_type(ENDIAN) == SHT_NOBITS || size == 0 || self.has(kind) {
                continue;
            }
            if size > max_section {
                return Err(TableError::TooLarge);
            }
            let Ok(bytes) = data.read_bytes_at(offset, size) else {
                continue;
            };
            let bytes = if section.sh_flags(ENDIAN).contains(SHF_COMPRESSED) {
                match decompress(bytes, max_section) {
                    Some(bytes) => Cow::Owned(bytes),
                    None => continue,
                }
            } else {
                Cow::Borrowed(bytes)
            };
            self.frames.push((kind, bytes));
        }
        self.set_bases();
        Ok(())
    }

    /// Finds the unwind information by the segment that points to it (`PT_GNU_EH_FRAME`), as the C library does.
    fn read_by_frame_header<R: ReadRef<'data>>(
        &mut self,
        data: R,
        segment: Segment,
        max_section: u64,
    ) {
        let Ok(bytes) = data.read_bytes_at(segment.offset, segment.size.min(64)) else {
            return;
        };
        let bases = BaseAddresses::default().set_eh_frame_hdr(segment.address);
        let Ok(parsed) = EhFrameHdr::new(bytes, LittleEndian).parse(&bases, 8) else {
            return;
        };
        let Pointer::Direct(address) = parsed.eh_frame_ptr() else {
            return;
        };
        // An end mark terminates the information, so the rest of the segment does not matter.
        let found = self.segments.iter().find_map(|segment| {
            let within = segment.within(address)?;
            let size = (segment.size - within).min(max_section);
            data.read_bytes_at(segment.offset.checked_add(within)?, size)
                .ok()
        });
        if let Some(bytes) = found {
            let [_, _, text, got] = self.addresses;
            self.addresses = [Some(address), Some(segment.address), text, got];
            self.set_bases();
            self.frames
                .push((FrameSection::EhFrame, Cow::Borrowed(bytes)));
        }
    }

    /// The file offset and the length of the code at an address, at most `length` bytes.
    pub(super) fn code(&self, address: u64, length: u64) -> Option<(u64, u64)> {
        let segments = self.segments.iter().filter(|segment| segment.executable);
        for segment in segments {
            if let Some(within) = segment.within(address) {
                let length = length.min(segment.size - within);
                return Some((segment.offset.checked_add(within)?, length));
            }
        }
        None
    }

    /// The file offsets of the first byte of code and of the end of the last.
    pub(super) fn span(&self) -> Option<(u64, u64)> {
        let code = self
            .segments
            .iter()
            .filter(|segment| segment.executable && segment.size > 0);
        let start = code.clone().map(|segment| segment.offset).min()?;
        let end = code
            .map(|segment| segment.offset.saturating_add(segment.size))
            .max()?;
        Some((start, end))
    }
}

/// The content of a compressed section, if it is not longer than `max_bytes`.
fn decompress(section: &[u8], max_bytes: u64) -> Option<Vec<u8>> {
    let (header, content) =
        object::from_bytes::<CompressionHeader64<object::LittleEndian>>(section).ok()?;
    if header.ch_size.get(ENDIAN) > max_bytes {
        return None;
    }
    let content: Box<dyn Read + '_> = match header.ch_type.get(ENDIAN) {
        ELFCOMPRESS_ZLIB => Box::new(flate2::read::ZlibDecoder::new(content)),
        ELFCOMPRESS_ZSTD => {
            let mut decoder = zstd::stream::read::Decoder::new(content).ok()?;
            decoder.window_log_max(MAX_WINDOW).ok()?;
            Box::new(decoder)
        }
        _ => return None,
    };
    let mut bytes = Vec::new();
    content.take(max_bytes).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
