//! What tells a build of an ELF file apart, where its code is linked, and the path of its debug file.
//!
//! Part of `proc`. The file belongs to a traced process and may contain anything, so a reader parses it.

use std::fs::File;
use std::path::PathBuf;

use object::elf::PF_X;
use object::{Object as _, ObjectSegment as _, ReadRef, SegmentFlags};
use serde::{Deserialize, Serialize};

use crate::reader::{Job, Reader};

/// Longest build id that is accepted. GNU tools write 20 bytes.
pub const MAX_BYTES: usize = 64;

/// Most parts of a file with code that are kept. Linkers make one or two.
const MAX_PARTS: usize = 16;

/// A build of an ELF file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// Its GNU build id; empty if it has none.
    pub id: Vec<u8>,
    /// Its parts with code.
    code: Vec<LinkedCode>,
}

/// A part of a file with code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LinkedCode {
    offset: u64,
    size: u64,
    /// Where it is linked.
    address: u64,
}

impl Build {
    /// The link-time address of an offset in its code.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        self.code.iter().find_map(|part| {
            let within = offset.checked_sub(part.offset)?;
            (within < part.size).then(|| part.address.wrapping_add(within))
        })
    }
}

/// The path of a build's debug file, relative to a folder of debug files.
pub fn debug_file(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!(".build-id/{first:02x}/{rest}.debug").into())
}

/// Asks a reader what a file is. The result is empty if it is no ELF file, or can't be read.
pub fn build_of(reader: &mut Reader, name: &str, file: &File) -> Build {
    let build: Build = reader
        .ask(Job::Identify, &(), name, &[file])
        .unwrap_or_default();
    let is_sound = build.id.len() <= MAX_BYTES && build.code.len() <= MAX_PARTS;
    if is_sound { build } else { Build::default() }
}

/// Reads it in the reader process.
pub fn read_build<'a, R: ReadRef<'a>>(data: R) -> Build {
    let Ok(image) = object::File::parse(data) else {
        return Build::default();
    };
    let id = image.build_id().ok().flatten().map(<[u8]>::to_vec);
    let has_code =
        |flags| matches!(flags, SegmentFlags::Elf { p_flags, .. } if p_flags.contains(PF_X));
    Build {
        id: id.filter(|id| id.len() <= MAX_BYTES).unwrap_or_default(),
        code: image
            .segments()
            .filter(|segment| has_code(segment.flags()))
            .take(MAX_PARTS)
            .map(|segment| {
                let (offset, size) = segment.file_range();
                LinkedCode {
                    offset,
                    size,
                    address: segment.address(),
                }
            })
            .collect(),
    }
}
