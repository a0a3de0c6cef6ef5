//! The kernel's vDSO: code without a file that every process has mapped.
//!
//! Stage: unwind. The vDSO is the same in all processes, so the agent copies its own to a file in memory.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use heaptrace_common::wire::FileKey;

use super::mapped_file::MappedFile;
use crate::proc::maps;
use crate::sys;

/// The path of its mapping in `/proc/PID/maps`.
pub const VDSO: &str = "[vdso]";

/// More bytes than the vDSO of any kernel has, which is 4 KiB to 16 KiB.
const MAX_BYTES: u64 = 1 << 20;

/// The vDSO as a file; `None` if the kernel has none.
pub fn vdso() -> Option<MappedFile> {
    let image = image()?;
    let file = sys::file_in_memory("vdso", &image)
        .inspect_err(|error| tracing::warn!("can't copy the vDSO: {error}"))
        .ok()?;
    Some(MappedFile {
        key: FileKey::VDSO,
        file,
        path: VDSO.to_owned(),
        process: None,
    })
}

/// Its bytes in the memory of this process.
fn image() -> Option<Vec<u8>> {
    let text = maps::read(std::process::id()).ok()?;
    let mapping = maps::parse(&text).find(|mapping| mapping.path == VDSO)?;
    let size = mapping.end.checked_sub(mapping.start)?;
    let mut image = vec![0; usize::try_from(size.min(MAX_BYTES)).ok()?];
    let memory = File::open("/proc/self/mem").ok()?;
    memory.read_exact_at(&mut image, mapping.start).ok()?;
    Some(image)
}
