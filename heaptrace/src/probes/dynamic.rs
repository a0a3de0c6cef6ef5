//! The parts of an ELF file by which the dynamic linker loads it: its path, and the dynamic section.
//!
//! Stage: probes. Runs in a reader: the file may contain anything, so each number is limited. Stripped files have no sections,
//! so only segments are read. Must not know what the entries are used for.

use object::elf::{DT_NULL, DynamicTag, PT_DYNAMIC, ProgramHeader64};
use object::read::elf::{Dyn as _, ProgramHeader as _};
use object::{Endianness, ReadRef};

/// Most entries of the dynamic section.
const MAX_ENTRIES: usize = 4096;

/// Longest path of a dynamic linker.
const MAX_PATH: usize = 4096;

/// Path of the dynamic linker that a file names.
pub(super) fn linker<'a, R: ReadRef<'a>>(
    segments: &[ProgramHeader64<Endianness>],
    endian: Endianness,
    data: R,
) -> Option<&'a [u8]> {
    segments
        .iter()
        .find_map(|segment| segment.interpreter(endian, data).ok().flatten())
        .filter(|path| path.len() <= MAX_PATH)
}

/// The entries of the dynamic section; none if there is no such section.
pub(super) fn entries<'a, R: ReadRef<'a>>(
    segments: &[ProgramHeader64<Endianness>],
    endian: Endianness,
    data: R,
) -> Vec<(DynamicTag, u64)> {
    segments
        .iter()
        .find(|segment| segment.p_type(endian) == PT_DYNAMIC)
        .and_then(|segment| segment.dynamic(endian, data).ok().flatten())
        .unwrap_or_default()
        .iter()
        .take(MAX_ENTRIES)
        .map(|entry| (entry.d_tag(endian), entry.d_val(endian)))
        .take_while(|(tag, _)| *tag != DT_NULL)
        .collect()
}
