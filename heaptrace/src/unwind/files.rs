//! Files whose code a process runs, or is going to.
//!
//! Stage unwind. What is loaded before the first event need not be asked for later.

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::Path;

use heaptrace_common::wire::FileKey;

use crate::open::{self, Opened};
use crate::proc::maps;

/// A file with code, open, as the kernel program knows it.
#[derive(Debug)]
pub struct MappedFile {
    /// Its identity.
    pub key: FileKey,
    /// The file.
    pub file: File,
    /// By which path it was opened, for messages.
    pub path: String,
    /// Whose code it is; nobody's where it is loaded for all.
    pub user: Option<User>,
}

/// A process that runs a file's code.
#[derive(Clone, Debug)]
pub struct User {
    /// Its id.
    pub pid: u32,
    /// Its name, where it has another one now: it is only going to run the code.
    pub name: Option<String>,
}

impl From<u32> for User {
    fn from(pid: u32) -> Self {
        Self { pid, name: None }
    }
}

impl MappedFile {
    fn new(opened: Opened, path: String, user: Option<User>) -> Self {
        let device = opened.identity.file.device;
        Self {
            key: FileKey {
                inode: opened.identity.file.inode,
                device: kernel_device(libc::major(device), libc::minor(device)),
                version: opened.identity.version,
            },
            file: opened.file,
            path,
            user,
        }
    }

    /// Opens a file by its path, which the user named.
    pub fn open(path: impl AsRef<Path>, user: Option<User>) -> Option<Self> {
        let path = path.as_ref();
        let opened = open::named(path).ok()?;
        Some(Self::new(opened, path.display().to_string(), user))
    }

    /// Opens what a process has mapped, if it is still there.
    pub fn of_mapping(pid: u32, start: u64, end: u64) -> Option<Self> {
        let opened = open::mapped(pid, start, end, None).ok()?;
        let path = format!("what process {pid} has mapped at {start:#x}");
        Some(Self::new(opened, path, Some(pid.into())))
    }

    /// Its name for messages: the path that leads to it now, if one does.
    pub(super) fn name(&self) -> String {
        let path = std::fs::read_link(open::descriptor(self.file.as_fd()));
        path.map_or_else(|_| self.path.clone(), |path| path.display().to_string())
    }

    /// The same under the key that the kernel program has for it, if it can be that file.
    ///
    /// A file system of layers or of volumes shows other devices than the kernel has inside; the number and
    /// the time of the last change stay. What was mapped there meanwhile instead has others.
    pub fn under(self, key: FileKey) -> Option<Self> {
        let is_same = self.key.version == key.version
            && (self.key.inode == key.inode || self.key.device != key.device);
        is_same.then_some(Self { key, ..self })
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
                user: Some(pid.into()),
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
        let mut reader = crate::jobs::reader_of_tests();
        let foretold: HashSet<_> = allocators::files_of_command(&mut reader, &[own.into()])
            .iter()
            .filter_map(|path| MappedFile::open(path, None))
            .map(|file| file.key)
            .collect();
        assert!(foretold.len() >= 3, "program, loader and C library");
        assert!(foretold.is_subset(&mapped), "{foretold:?} {mapped:?}");
    }
}
