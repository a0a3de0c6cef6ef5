//! Finds the files of modules.
//!
//! Stage: symbolize. A running session has these files open. An offline command searches this machine's disk, which may no
//! longer have the file that was traced.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use super::debug_file;
use crate::join::{Module, ModuleId, OpenFiles};
use crate::open::{self, Root};
use crate::reader::Reader;

/// Finds the file of a module.
pub trait ModuleFiles {
    /// The open file of the module; `None` if it can't be found.
    fn file(&self, reader: &mut Reader, id: ModuleId, module: &Module) -> Option<Arc<File>>;
}

/// The files of a running session: exactly those that are mapped.
impl ModuleFiles for OpenFiles {
    fn file(&self, _: &mut Reader, id: ModuleId, _: &Module) -> Option<Arc<File>> {
        OpenFiles::file(self, id)
    }
}

/// The files on this machine's disk, for profiles that were recorded here or on a machine with the same files.
///
/// A file is accepted only if it has the recorded build id. If none was recorded, the file at the path is accepted without
/// a check: its names are wrong if it was replaced since.
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
