//! The build id of an ELF file.
//!
//! Stage: probes. The file is a traced process's and may be anything.

use std::fs::File;

use object::Object as _;

/// Longest build id that is believed; GNU's have 20 bytes.
const MAX_BYTES: usize = 64;

/// The GNU build id of a file; empty where it has none, or is no ELF file.
pub fn build_id(file: &File) -> Vec<u8> {
    let cache = object::ReadCache::new(file);
    object::File::parse(&cache)
        .ok()
        .and_then(|image| image.build_id().ok().flatten().map(<[u8]>::to_vec))
        .filter(|id| id.len() <= MAX_BYTES)
        .unwrap_or_default()
}
