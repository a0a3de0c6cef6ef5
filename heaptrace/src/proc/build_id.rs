//! The build id of an ELF file, and the debug file that it leads to.
//!
//! Part of `proc`. The file is a traced process's and may be anything: a reader looks.

use std::fs::File;
use std::path::PathBuf;

use object::{Object as _, ReadRef};

use crate::reader::{Job, Reader};

/// Longest build id that is believed; GNU's have 20 bytes.
pub const MAX_BYTES: usize = 64;

/// Where the debug file of a build is, below a folder of debug files.
pub fn debug_file(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!(".build-id/{first:02x}/{rest}.debug").into())
}

/// The GNU build id of a file; empty where it has none, is no ELF file, or can't be read.
pub fn build_id(reader: &mut Reader, name: &str, file: &File) -> Vec<u8> {
    let id: Vec<u8> = reader
        .ask(Job::Identify, &(), name, &[file])
        .unwrap_or_default();
    if id.len() > MAX_BYTES { Vec::new() } else { id }
}

/// The reader's side of it.
pub fn read_build_id<'a, R: ReadRef<'a>>(data: R) -> Vec<u8> {
    object::File::parse(data)
        .ok()
        .and_then(|image| image.build_id().ok().flatten().map(<[u8]>::to_vec))
        .filter(|id| id.len() <= MAX_BYTES)
        .unwrap_or_default()
}
