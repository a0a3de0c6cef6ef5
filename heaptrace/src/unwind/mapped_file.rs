//! Files with code that a process runs or will run.
//!
//! Stage: unwind. The kernel program does not have to request tables that are loaded before the first event.

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::Path;

use heaptrace_common::wire::FileKey;
use rustix::fs::{major, minor};

use crate::open::{self, Identity, Opened};
use crate::proc::maps;

/// An open file with code, and its key in the kernel program.
#[derive(Debug)]
pub struct MappedFile {
    /// The kernel program's key for the file.
    pub key: FileKey,
    /// The file.
    pub file: File,
    /// The path by which it was opened, for messages.
    pub path: String,
    /// The process that runs its code; `None` if the file is loaded for all processes.
    pub process: Option<UsingProcess>,
}

/// A process that runs a file's code.
#[derive(Clone, Debug)]
pub struct UsingProcess {
    /// Its id.
    pub pid: u32,
    /// Its future name, if the process has not yet called `exec` to run the code.
    pub name: Option<String>,
}

impl From<u32> for UsingProcess {
    fn from(pid: u32) -> Self {
        Self { pid, name: None }
    }
}

impl MappedFile {
    fn new(opened: Opened, path: String, process: Option<UsingProcess>) -> Self {
        Self {
            key: probable_key(&opened.identity),
            file: opened.file,
            path,
            process,
        }
    }

    /// Opens a file by a path that the user named.
    pub fn open(path: impl AsRef<Path>, process: Option<UsingProcess>) -> Option<Self> {
        let path = path.as_ref();
        let opened = open::named(path).ok()?;
        Some(Self::new(opened, path.display().to_string(), process))
    }

    /// A file that is open already, by another descriptor of it.
    pub fn of_open(file: &File, key: FileKey, path: &str) -> Option<Self> {
        Some(Self {
            key,
            file: file.try_clone().ok()?,
            path: path.to_owned(),
            process: None,
        })
    }

    /// Opens the file of a process's mapping, if the mapping still exists.
    pub fn of_mapping(pid: u32, start: u64, end: u64) -> Option<Self> {
        let opened = open::mapped(pid, start, end, None).ok()?;
        let path = format!("the file that process {pid} has mapped at {start:#x}");
        Some(Self::new(opened, path, Some(pid.into())))
    }

    /// Its name for messages: its current path, if it has one.
    pub(super) fn name(&self) -> String {
        let path = std::fs::read_link(open::descriptor(self.file.as_fd()));
        path.map_or_else(|_| self.path.clone(), |path| path.display().to_string())
    }

    /// Replaces the key by the one of the kernel program, if the file can be the one that the kernel program means.
    ///
    /// A file system with layers or volumes shows other devices than the kernel uses internally, but the same inode and time
    /// of the last change. A file that was mapped at the same address meanwhile has others.
    pub fn under(self, key: FileKey) -> Option<Self> {
        let is_same = self.key.version == key.version
            && (self.key.inode == key.inode || self.key.device != key.device);
        is_same.then_some(Self { key, ..self })
    }
}

/// The files of the executable mappings of a process.
pub fn of_process(pid: u32) -> Vec<MappedFile> {
    let thread = maps::living_thread(pid);
    let text = maps::read(thread).unwrap_or_default();
    let mut seen = HashSet::new();
    maps::parse(&text)
        .filter(|mapping| mapping.executable && mapping.inode != 0)
        .filter_map(|mapping| {
            let opened = maps::open_mapped(thread, &mapping).ok()?;
            let key = FileKey {
                inode: mapping.inode,
                device: kernel_device(mapping.device.0, mapping.device.1),
                version: opened.identity.version,
            };
            seen.insert(key).then_some(MappedFile {
                key,
                file: opened.file,
                path: mapping.path,
                process: Some(pid.into()),
            })
        })
        .collect()
}

/// The key that the kernel program has for a file, unless its file system shows other devices than the kernel uses internally.
pub fn probable_key(identity: &Identity) -> FileKey {
    let device = identity.file.device;
    FileKey {
        inode: identity.file.inode,
        device: kernel_device(major(device), minor(device)),
        version: identity.version,
    }
}

/// A device number in the kernel's internal form.
fn kernel_device(major: u32, minor: u32) -> u64 {
    u64::from(major) << 20 | u64::from(minor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probes::allocators;

    /// Check that the files that are predicted for a command are among those that a process of it has mapped.
    #[test]
    fn files_of_a_command_are_predicted() {
        let own = std::env::current_exe().unwrap();
        let mapped: HashSet<_> = of_process(std::process::id())
            .into_iter()
            .map(|file| file.key)
            .collect();
        let mut reader = crate::jobs::reader_of_tests();
        let predicted: HashSet<_> = allocators::files_of_command(&mut reader, &[own.into()])
            .iter()
            .filter_map(|path| MappedFile::open(path, None))
            .map(|file| file.key)
            .collect();
        assert!(predicted.len() >= 3, "program, loader and C library");
        assert!(predicted.is_subset(&mapped), "{predicted:?} {mapped:?}");
    }
}
