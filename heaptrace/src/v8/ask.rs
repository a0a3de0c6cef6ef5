//! Asks a reader for the version of V8 in a file.
//!
//! Part of `v8`. The answer is untrusted: only a version that is known counts.

use std::fs::File;

use object::ReadCache;

use super::image::find;
use super::layouts::layout;
use crate::reader::{Job, Reader, encode};

/// Asks a reader for the version of V8 in a file; `None` if the file does not hold it, holds a version that is not known, or can't be
/// read.
pub fn version_in(reader: &mut Reader, name: &str, file: &File) -> Option<u32> {
    let answer: Result<Option<u32>, _> = reader.ask(Job::V8, &(), name, &[file]);
    let version: Option<u32> = answer.unwrap_or_default();
    version.filter(|version| layout(*version).is_some())
}

/// Answers with the version of V8 in a file.
pub fn answer(files: &[File]) -> Vec<u8> {
    let found = match files {
        [file] => find(&ReadCache::new(file)),
        _ => None,
    };
    encode(&found.map(|image| image.version))
}
