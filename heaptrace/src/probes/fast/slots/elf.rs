//! The parts of an ELF file that the dynamic linker uses: what is loaded, and the dynamic section.
//!
//! Stage: probes. Runs in a reader: the file may contain anything, so each size is checked before memory is allocated.
//! Stripped files have no sections, so none are read.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use object::elf::{DynamicTag, EM_X86_64, ET_DYN, ET_EXEC, FileHeader64, PF_W, PF_X, PT_LOAD};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{Endianness, ReadCache};

use super::answer::MAX_PARTS;
use crate::probes::dynamic;

/// A part of the file that is loaded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) address: u64,
    pub(super) offset: u64,
    /// Its bytes in the file.
    pub(super) size: u64,
    pub(super) is_writable: bool,
    pub(super) is_executable: bool,
}

/// A file.
pub(super) struct Elf<'f> {
    file: &'f File,
    pub(super) loads: Vec<Load>,
    /// Whether the file is loaded at the addresses in it.
    pub(super) is_fixed: bool,
    /// Path of the dynamic loader; empty if there is none.
    pub(super) interpreter: Vec<u8>,
    dynamic: Vec<(DynamicTag, u64)>,
}

impl<'f> Elf<'f> {
    /// Reads the file's tables. `None` if it is no x86-64 program or library.
    pub(super) fn read(file: &'f File) -> Option<Self> {
        let length = file.metadata().ok()?.len();
        let cache = ReadCache::new(file);
        let data = &cache;
        let header = FileHeader64::<Endianness>::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let kind = header.e_type(endian);
        let is_ours = endian == Endianness::Little
            && header.e_machine(endian) == EM_X86_64
            && (kind == ET_DYN || kind == ET_EXEC);
        if !is_ours {
            return None;
        }
        let segments = header.program_headers(endian, data).ok()?;
        let loads = segments
            .iter()
            .filter(|segment| segment.p_type(endian) == PT_LOAD)
            .take(MAX_PARTS)
            .filter_map(|segment| {
                let (offset, size) = segment.file_range(endian);
                let address = segment.p_vaddr(endian);
                let fits = address.checked_add(size).is_some() && offset <= length;
                let flags = segment.p_flags(endian);
                fits.then_some(Load {
                    address,
                    offset,
                    size: size.min(length.saturating_sub(offset)),
                    is_writable: flags.0 & PF_W.0 != 0,
                    is_executable: flags.0 & PF_X.0 != 0,
                })
            })
            .collect();
        let interpreter = dynamic::linker(segments, endian, data).unwrap_or_default();
        let dynamic = dynamic::entries(segments, endian, data);
        Some(Self {
            file,
            loads,
            is_fixed: kind == ET_EXEC,
            interpreter: interpreter.to_vec(),
            dynamic,
        })
    }

    /// A value of the dynamic section.
    pub(super) fn value(&self, wanted: DynamicTag) -> Option<u64> {
        let found = self.dynamic.iter().find(|(tag, _)| *tag == wanted);
        found.map(|(_, value)| *value)
    }

    /// Address and size of a table that two entries of the dynamic section name.
    pub(super) fn table(&self, start: DynamicTag, size: DynamicTag) -> Option<(u64, u64)> {
        Some((self.value(start)?, self.value(size)?))
    }

    /// The bytes from an address on, at most `most`. `None` if nothing is loaded there.
    pub(super) fn bytes(&self, address: u64, most: u64) -> Option<Vec<u8>> {
        let (offset, behind) = self.loads.iter().find_map(|load| {
            let within = address.checked_sub(load.address)?;
            let behind = load.size.checked_sub(within).filter(|behind| *behind > 0)?;
            Some((load.offset.checked_add(within)?, behind))
        })?;
        // The size is at most that of the file.
        let mut bytes = vec![0; usize::try_from(behind.min(most)).ok()?];
        self.read_at(&mut bytes, offset)?;
        Some(bytes)
    }

    /// Fills a buffer from an offset in the file.
    pub(super) fn read_at(&self, bytes: &mut [u8], offset: u64) -> Option<()> {
        self.file.read_exact_at(bytes, offset).ok()
    }
}
