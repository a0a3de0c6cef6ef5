//! Finds the virtual machine's description of itself in a file, and asks a reader for it.
//!
//! Part of `hotspot`. The file is untrusted: the addresses that are found may lead anywhere in the process.

use std::fs::File;

use object::read::elf::{FileHeader as _, ProgramHeader as _, Sym as _};
use object::{LittleEndian, ReadCache, elf};
use serde::{Deserialize, Serialize};

use crate::reader::{Job, Reader, decode, encode};

/// Most bytes of the file's table of exported symbols, and of their names.
const MAX_TABLE: u64 = 16 << 20;

/// The list of its structures' members, and that of their types.
const STRUCTS: &[u8] = b"gHotSpotVMStructs";
const TYPES: &[u8] = b"gHotSpotVMTypes";

/// Where a file has the pointers to the lists that describe its structures. Addresses are relative to the address at which the
/// beginning of the file is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The list of members.
    pub structs: u64,
    /// The list of types.
    pub types: u64,
}

/// Asks a reader for the description in a file; `None` if it has none, or can't be read.
pub fn image(reader: &mut Reader, name: &str, file: &File) -> Option<Image> {
    let answer: Result<Option<Image>, _> = reader.ask(Job::HotSpot, &(), name, &[file]);
    answer.unwrap_or_default()
}

/// Answers with the description in a file.
pub fn answer(question: &[u8], files: &[File]) -> Vec<u8> {
    let found = match (decode::<()>(question), files) {
        (Some(()), [file]) => {
            let cache = ReadCache::new(file);
            find(&cache)
        }
        _ => None,
    };
    encode(&found)
}

/// Finds the description in an ELF file.
pub fn find<'data, R: object::ReadRef<'data>>(data: R) -> Option<Image> {
    type Header = elf::FileHeader64<LittleEndian>;
    let endian = LittleEndian;
    let header = Header::parse(data).ok()?;
    let segments = header.program_headers(endian, data).ok()?;
    let first = segments
        .iter()
        .find(|segment| segment.p_type(endian) == elf::PT_LOAD)?;
    let base = first.p_vaddr(endian).checked_sub(first.p_offset(endian))?;
    let sections = header.sections(endian, data).ok()?;
    let is_small = sections
        .iter()
        .filter(|it| it.sh_type.get(endian) == elf::SHT_DYNSYM)
        .all(|it| it.sh_size.get(endian) <= MAX_TABLE);
    if !is_small {
        return None;
    }
    let symbols = sections.symbols(endian, data, elf::SHT_DYNSYM).ok()?;
    let address = |wanted: &[u8]| {
        let symbol = symbols.iter().find(|symbol| {
            !symbol.is_undefined(endian)
                && symbol.name(endian, symbols.strings()).ok() == Some(wanted)
        })?;
        symbol.st_value(endian).checked_sub(base)
    };
    Some(Image {
        structs: address(STRUCTS)?,
        types: address(TYPES)?,
    })
}
