//! Files whose code a process runs, or is going to.
//!
//! Stage unwind. What is loaded before the first event need not be asked for later.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use heaptrace_common::wire::FileKey;

use crate::probes::maps;

/// A file with code, open, as the kernel program knows it.
#[derive(Debug)]
pub struct MappedFile {
    /// Its identity.
    pub key: FileKey,
    /// The file.
    pub file: File,
    /// Its path, for messages.
    pub path: String,
}

impl MappedFile {
    /// Opens a file by its path.
    pub fn open(path: impl AsRef<Path>) -> Option<Self> {
        let path = path.as_ref();
        let file = File::open(path).ok()?;
        let meta = file.metadata().ok()?;
        let device = meta.dev();
        Some(Self {
            key: FileKey {
                inode: meta.ino(),
                device: kernel_device(libc::major(device), libc::minor(device)),
            },
            file,
            path: path.display().to_string(),
        })
    }
}

/// The files that a process has mapped executable.
pub fn of_process(pid: u32) -> Vec<MappedFile> {
    let thread = maps::living_thread(pid);
    let text = maps::read(thread).unwrap_or_default();
    let mut seen = HashSet::new();
    maps::parse(&text)
        .filter(|mapping| mapping.executable && mapping.inode != 0)
        .filter_map(|mapping| {
            let key = FileKey {
                inode: mapping.inode,
                device: kernel_device(mapping.device.0, mapping.device.1),
            };
            let file = maps::open_mapped(thread, &mapping).ok()?;
            seen.insert(key).then_some(MappedFile {
                key,
                file,
                path: mapping.path,
            })
        })
        .collect()
}

/// A device number as the kernel keeps it.
fn kernel_device(major: u32, minor: u32) -> u64 {
    u64::from(major) << 20 | u64::from(minor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probes::allocators;

    /// Check that a command's files are the ones that a process of it has mapped.
    #[test]
    fn a_command_is_known_before_it_runs() {
        let own = std::env::current_exe().unwrap();
        let mapped: HashSet<_> = of_process(std::process::id())
            .into_iter()
            .map(|file| file.key)
            .collect();
        let foretold: HashSet<_> = allocators::files_of_command(&[own.into()])
            .iter()
            .filter_map(MappedFile::open)
            .map(|file| file.key)
            .collect();
        assert!(foretold.len() >= 3, "program, loader and C library");
        assert!(foretold.is_subset(&mapped), "{foretold:?} {mapped:?}");
    }
}
