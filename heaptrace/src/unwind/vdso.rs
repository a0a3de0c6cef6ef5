//! The kernel's vDSO: code that every process has mapped, of no file.
//!
//! Stage unwind. It is the same in all processes, so the agent's own is read, and made a file.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use heaptrace_common::wire::FileKey;

use super::files::MappedFile;
use crate::proc::maps;
use crate::sys;

/// What stands for it in the place of a path.
pub const VDSO: &str = "[vdso]";

/// More than any kernel's has; it is 4 KiB to 16 KiB.
const MAX_BYTES: u64 = 1 << 20;

/// The vDSO as a file; `None` where the kernel has none.
pub fn vdso() -> Option<MappedFile> {
    let image = image()?;
    let file = sys::file_in_memory("vdso", &image)
        .inspect_err(|error| tracing::warn!("can't copy the vDSO: {error}"))
        .ok()?;
    Some(MappedFile {
        key: FileKey::VDSO,
        file,
        path: VDSO.to_owned(),
        user: None,
    })
}

/// Its bytes, as they stand in this process.
fn image() -> Option<Vec<u8>> {
    let text = maps::read(std::process::id()).ok()?;
    let mapping = maps::parse(&text).find(|mapping| mapping.path == VDSO)?;
    let size = mapping.end.checked_sub(mapping.start)?;
    let mut image = vec![0; usize::try_from(size.min(MAX_BYTES)).ok()?];
    let memory = File::open("/proc/self/mem").ok()?;
    memory.read_exact_at(&mut image, mapping.start).ok()?;
    Some(image)
}
