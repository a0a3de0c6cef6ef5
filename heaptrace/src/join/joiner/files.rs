//! The files of a run, as the session tells of them and asks for them: allocators, and modules.
//!
//! Stage: join.

use std::fs::File;
use std::sync::Arc;

use super::Joiner;
use crate::join::modules::OpenFiles;
use crate::join::update::{Allocator, ModuleId};
use crate::open::{Expected, FileId};

impl Joiner {
    /// Makes an allocator known that is probed, with its file.
    pub fn add_allocator(&mut self, allocator: Allocator, file: FileId) {
        self.addresses.add_allocator(allocator, file);
    }

    /// Makes known what of a file is an allocator's code, which maps memory for its own blocks.
    pub fn add_own_code(&mut self, path: String, file: FileId, ranges: Vec<(u64, u64)>) {
        if self.records_mappings {
            self.addresses.add_own_code(path, file, ranges);
        }
    }

    /// Makes known what allocates and is not probed, with the reason.
    pub fn add_unprobed(&mut self, what: String) {
        self.addresses.add_unprobed(what);
    }

    /// What could not be probed so far.
    pub fn unprobed(&self) -> impl Iterator<Item = &str> {
        self.addresses.unprobed().iter().map(String::as_str)
    }

    /// Whether a file is probed, by what the kernel says of it.
    pub fn is_probed(&self, file: &Expected) -> bool {
        self.addresses.is_probed(file)
    }

    /// The new modules whose build ids are to be asked for, with their paths and files.
    pub fn take_unidentified(&mut self) -> Vec<(ModuleId, String, Arc<File>)> {
        self.addresses.take_unidentified()
    }

    /// Keeps the build id of a module that is not told yet.
    pub fn identify(&mut self, module: ModuleId, build_id: Vec<u8>) {
        self.addresses.identify(module, build_id);
    }

    /// The open files of modules.
    pub fn files(&self) -> &OpenFiles {
        self.addresses.files()
    }

    /// The open files of modules, when everything is joined.
    pub fn into_files(self) -> OpenFiles {
        self.addresses.into_files()
    }
}
