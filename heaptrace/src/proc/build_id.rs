//! The build id of an ELF file, and the path of its debug file.
//!
//! Part of `proc`. The file belongs to a traced process and may contain anything, so a reader parses it.

use std::fs::File;
use std::path::PathBuf;

use object::{Object as _, ReadRef};

use crate::reader::{Job, Reader};

/// Longest build id that is accepted. GNU tools write 20 bytes.
pub const MAX_BYTES: usize = 64;

/// The path of a build's debug file, relative to a folder of debug files.
pub fn debug_file(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!(".build-id/{first:02x}/{rest}.debug").into())
}

/// Asks a reader for the GNU build id of a file. Empty if the file has none, is no ELF file, or can't be read.
pub fn build_id(reader: &mut Reader, name: &str, file: &File) -> Vec<u8> {
    let id: Vec<u8> = reader
        .ask(Job::Identify, &(), name, &[file])
        .unwrap_or_default();
    if id.len() > MAX_BYTES { Vec::new() } else { id }
}

/// Reads the GNU build id in the reader process.
pub fn read_build_id<'a, R: ReadRef<'a>>(data: R) -> Vec<u8> {
    object::File::parse(data)
        .ok()
        .and_then(|image| image.build_id().ok().flatten().map(<[u8]>::to_vec))
        .filter(|id| id.len() <= MAX_BYTES)
        .unwrap_or_default()
}
