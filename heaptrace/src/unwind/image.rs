//! Where an ELF file has its code and its unwind information.
//!
//! Stage: unwind. The file is a traced process's and may be anything; it knows no unwind rules.

use gimli::{BaseAddresses, EhFrameHdr, LittleEndian, Pointer};
use object::elf::{
    EM_X86_64, ET_DYN, ET_EXEC, FileHeader64, PF_X, PT_GNU_EH_FRAME, PT_LOAD, SHF_COMPRESSED,
    SHT_NOBITS,
};
use object::read::ReadRef;
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _};

use super::table::TableError;

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
    /// How far into the segment an address is.
    fn within(&self, address: u64) -> Option<u64> {
        let within = address.checked_sub(self.address)?;
        (within < self.size).then_some(within)
    }
}

/// Which form the unwind information has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    EhFrame,
    DebugFrame,
}

/// What the builder has to know of a file.
pub(super) struct Image<'data> {
    /// The loaded segments.
    pub(super) segments: Vec<Segment>,
    /// Unwind information, the best first.
    pub(super) frames: Vec<(Form, &'data [u8])>,
    /// What encoded pointers are relative to.
    pub(super) bases: BaseAddresses,
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
        image.sections(header, data, max_section)?;
        if image.frames.is_empty()
            && let Some(segment) = frame_header
        {
            image.by_frame_header(data, segment, max_section);
        }
        Ok(image)
    }

    fn sections<R: ReadRef<'data>>(
        &mut self,
        header: &FileHeader64<object::LittleEndian>,
        data: R,
        max_section: u64,
    ) -> Result<(), TableError> {
        // A file can be run without section headers, or with broken ones.
        let Ok(sections) = header.sections(ENDIAN, data) else {
            return Ok(());
        };
        for section in sections.iter() {
            let Ok(name) = sections.section_name(ENDIAN, section) else {
                continue;
            };
            let address = section.sh_addr(ENDIAN);
            let bases = std::mem::take(&mut self.bases);
            self.bases = match name {
                b".eh_frame" => bases.set_eh_frame(address),
                b".eh_frame_hdr" => bases.set_eh_frame_hdr(address),
                b".text" => bases.set_text(address),
                b".got" => bases.set_got(address),
                _ => bases,
            };
            let form = match name {
                b".eh_frame" => Form::EhFrame,
                b".debug_frame" => Form::DebugFrame,
                _ => continue,
            };
            let (offset, size) = (section.sh_offset(ENDIAN), section.sh_size(ENDIAN));
            let flags = section.sh_flags(ENDIAN);
            if section.sh_type(ENDIAN) == SHT_NOBITS || size == 0 || flags.contains(SHF_COMPRESSED)
            {
                continue;
            }
            if size > max_section {
                return Err(TableError::TooLarge);
            }
            if let Ok(bytes) = data.read_bytes_at(offset, size) {
                self.frames.push((form, bytes));
            }
        }
        self.frames.sort_by_key(|(form, _)| *form != Form::EhFrame);
        Ok(())
    }

    /// Finds the unwind information as the C library does, by the segment that points to it.
    fn by_frame_header<R: ReadRef<'data>>(&mut self, data: R, segment: Segment, max_section: u64) {
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
        // It has an end mark: what follows in its segment doesn't matter.
        let found = self.segments.iter().find_map(|segment| {
            let within = segment.within(address)?;
            let size = (segment.size - within).min(max_section);
            data.read_bytes_at(segment.offset.checked_add(within)?, size)
                .ok()
        });
        if let Some(bytes) = found {
            self.bases = bases.set_eh_frame(address);
            self.frames.push((Form::EhFrame, bytes));
        }
    }

    /// The file offsets of the code from an address on, at most `length` bytes.
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

    /// The file offsets from the first to behind the last byte of code.
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
