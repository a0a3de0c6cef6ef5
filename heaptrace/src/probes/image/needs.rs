//! Parses what a file needs when it is started: an interpreter, or a dynamic loader and libraries.
//!
//! Stage: probes. The file may contain anything, so this runs in a reader. Must not know where libraries are.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use object::elf::{
    DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_STRSZ, DT_STRTAB, DynamicTag, FileHeader64, PT_LOAD,
};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{Endianness, ReadRef};
use serde::{Deserialize, Serialize};

use crate::probes::dynamic;
use crate::reader::encode;

/// Most libraries of one file.
const MAX_LIBRARIES: usize = 512;

/// Longest name or list of folders.
const MAX_TEXT: u64 = 4096;

/// Longest first line of a script.
const MAX_LINE: u64 = 256;

/// What a file needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needs {
    /// The interpreter, if the file is a script.
    pub script: Option<Vec<u8>>,
    /// The rest of a script's first line.
    pub arguments: Vec<u8>,
    /// The dynamic loader.
    pub loader: Option<Vec<u8>>,
    /// Names or paths of libraries.
    pub libraries: Vec<Vec<u8>>,
    /// Folders for its libraries, and for the libraries that these need (`RPATH`).
    pub old_path: Vec<u8>,
    /// Folders for its own libraries only (`RUNPATH`).
    pub run_path: Vec<u8>,
}

/// The reader's answer: what the first of these files needs.
pub(crate) fn answer(files: &[File]) -> Vec<u8> {
    let needs = files
        .first()
        .map(|file| needs(&object::ReadCache::new(file)));
    encode(&needs.unwrap_or_default())
}

/// What a file needs. Empty if it is no program of this machine.
pub fn needs<'a, R: ReadRef<'a>>(data: R) -> Needs {
    script(data).or_else(|| of_elf(data)).unwrap_or_default()
}

/// The dynamic loader that an ELF file names.
pub fn interpreter<'a, R: ReadRef<'a>>(data: R) -> Option<PathBuf> {
    of_elf(data)?.loader.as_deref().map(path)
}

/// Bytes of a file as a path.
pub(super) fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

fn script<'a, R: ReadRef<'a>>(data: R) -> Option<Needs> {
    let length = data.len().ok()?.min(MAX_LINE);
    let line = data.read_bytes_at(0, length).ok()?.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?;
    let line = line.trim_ascii();
    let blank = line.iter().position(u8::is_ascii_whitespace);
    let (interpreter, arguments) = line.split_at_checked(blank.unwrap_or(line.len()))?;
    (!interpreter.is_empty()).then(|| Needs {
        script: Some(interpreter.to_vec()),
        arguments: arguments.trim_ascii().to_vec(),
        ..Needs::default()
    })
}

fn of_elf<'a, R: ReadRef<'a>>(data: R) -> Option<Needs> {
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, data).ok()?;
    let mut needs = Needs {
        loader: dynamic::linker(segments, endian, data).map(<[u8]>::to_vec),
        ..Needs::default()
    };
    let entries = dynamic::entries(segments, endian, data);
    let value = |wanted: DynamicTag| entries.iter().find(|(tag, _)| *tag == wanted);
    let Some((_, strings)) = value(DT_STRTAB) else {
        return Some(needs);
    };
    let strings = segments.iter().find_map(|segment| {
        let within = strings.checked_sub(segment.p_vaddr(endian))?;
        let is_there = segment.p_type(endian) == PT_LOAD && within < segment.p_filesz(endian);
        is_there.then(|| segment.p_offset(endian).checked_add(within))?
    })?;
    let size = value(DT_STRSZ).map_or(u64::MAX, |(_, size)| *size);
    let text = |at: u64| {
        let start = strings.checked_add(at).filter(|_| at < size)?;
        let end = start.checked_add(MAX_TEXT)?;
        let bytes = data.read_bytes_at_until(start..end, 0).ok()?;
        (!bytes.is_empty()).then(|| bytes.to_vec())
    };
    for (tag, at) in &entries {
        match *tag {
            DT_NEEDED if needs.libraries.len() < MAX_LIBRARIES => {
                needs.libraries.extend(text(*at));
            }
            DT_RPATH => needs.old_path = text(*at).unwrap_or_default(),
            DT_RUNPATH => needs.run_path = text(*at).unwrap_or_default(),
            _ => {}
        }
    }
    Some(needs)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a script's interpreter is found, with and without blanks before it, and what is behind it.
    #[test]
    fn interpreters_of_scripts_are_found() {
        for (line, arguments) in [
            ("#!/bin/sh -e\nrm", "-e"),
            ("#! /bin/sh\n", ""),
            ("#!/bin/sh", ""),
            ("#!/bin/sh  -u  x \n", "-u  x"),
        ] {
            let found = needs(line.as_bytes());
            assert_eq!(found.script.as_deref(), Some(b"/bin/sh".as_slice()));
            assert_eq!(found.arguments, arguments.as_bytes(), "{line}");
        }
        assert_eq!(needs(b"#!\n".as_slice()), Needs::default());
        assert_eq!(needs(b"".as_slice()), Needs::default());
    }
}
