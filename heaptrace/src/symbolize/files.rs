//! Where the files behind modules are.
//!
//! Stage: symbolize. A live session has them open; offline there is only this machine's disk, and
//! whether it still has the file that was traced.

use std::path::PathBuf;

use super::elf::{ElfFacts, open_regular};
use crate::join::{Module, ModuleId, OpenFiles};

/// Finds the file of a module.
pub trait ModuleFiles {
    /// A path at which that file can be opened now.
    fn path(&self, id: ModuleId, module: &Module) -> Option<PathBuf>;
}

/// The files of a run that goes on: the very ones that are mapped, and where one could not be opened
/// in time, the disk.
impl ModuleFiles for OpenFiles {
    fn path(&self, id: ModuleId, module: &Module) -> Option<PathBuf> {
        OpenFiles::path(self, id).or_else(|| OnDisk.path(id, module))
    }
}

/// This machine's disk, for profiles that were recorded here, or on a machine with the same files.
///
/// A file counts only if it has the build id that was recorded. One that was recorded without is
/// taken at its word, so its names may be wrong where it has been replaced since.
#[derive(Clone, Copy, Debug, Default)]
pub struct OnDisk;

impl ModuleFiles for OnDisk {
    fn path(&self, _id: ModuleId, module: &Module) -> Option<PathBuf> {
        if !module.path.starts_with('/') {
            return None;
        }
        let path = PathBuf::from(format!("{}{}", module.root, module.path));
        let file = open_regular(&path)?;
        if !module.build_id.is_empty() && ElfFacts::read(&file)?.build_id != module.build_id {
            return None;
        }
        Some(path)
    }
}
