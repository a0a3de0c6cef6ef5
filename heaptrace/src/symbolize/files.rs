//! Where the files behind modules are.
//!
//! Stage: symbolize. A live session has them open; offline there is only this machine's disk, and
//! whether it still has the file that was traced.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use super::debug_file;
use crate::join::{Module, ModuleId, OpenFiles};
use crate::open::{self, Root};
use crate::reader::Reader;

/// Finds the file of a module.
pub trait ModuleFiles {
    /// That file, open.
    fn file(&self, reader: &mut Reader, id: ModuleId, module: &Module) -> Option<Arc<File>>;
}

/// The files of a run that goes on: the very ones that are mapped.
impl ModuleFiles for OpenFiles {
    fn file(&self, _: &mut Reader, id: ModuleId, _: &Module) -> Option<Arc<File>> {
        OpenFiles::file(self, id)
    }
}

/// This machine's disk, for profiles that were recorded here, or on a machine with the same files.
///
/// A file counts only if it has the build id that was recorded. One that was recorded without is
/// taken at its word, so its names may be wrong where it has been replaced since.
#[derive(Clone, Copy, Debug, Default)]
pub struct OnDisk;

impl ModuleFiles for OnDisk {
    fn file(&self, reader: &mut Reader, _: ModuleId, module: &Module) -> Option<Arc<File>> {
        if !module.path.starts_with('/') {
            return None;
        }
        let opened = if module.root.is_empty() {
            open::named(Path::new(&module.path)).ok()?
        } else {
            let root = Root::at(Path::new(&module.root)).ok()?;
            root.open(Path::new(&module.path)).ok()?
        };
        if !module.build_id.is_empty() {
            let facts = debug_file::facts(reader, &module.path, &opened.file, None)?;
            if facts.build_id != module.build_id {
                return None;
            }
        }
        Some(Arc::new(opened.file))
    }
}
