//! Finds the files of modules.
//!
//! Stage: symbolize. A running session has these files open. An offline command searches this machine's disk, which may no
//! longer have the file that was traced.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use super::debug_file;
use crate::join::{Module, ModuleId, OpenFiles};
use crate::open::{self, Root};
use crate::profile::RunInfo;
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
/// A file is accepted only if it has the recorded build id. If none was recorded, the file at the path is accepted if it has not been changed or
/// replaced since the recording began, as far as its file system shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct OnDisk {
    /// When the recording began, in nanoseconds since 1970.
    began: Option<u64>,
}

impl OnDisk {
    /// The files of a recording.
    pub fn of(info: &RunInfo) -> Self {
        Self {
            began: Some(info.started_unix_ns),
        }
    }

    /// Whether a file was changed, or moved to its path, since the recording began.
    fn is_changed(self, file: &File) -> bool {
        self.began.is_some_and(|began| {
            let changed = file.metadata().and_then(|meta| {
                let seconds = u64::try_from(meta.ctime()).map_err(io::Error::other)?;
                Ok(seconds.saturating_mul(1_000_000_000) + meta.ctime_nsec().unsigned_abs())
            });
            changed.is_ok_and(|changed| changed >= began)
        })
    }
}

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
        if module.build_id.is_empty() {
            return (!self.is_changed(&opened.file)).then(|| Arc::new(opened.file));
        }
        let facts = debug_file::facts(reader, &module.path, &opened.file, None)?;
        (facts.build_id == module.build_id).then(|| Arc::new(opened.file))
    }
}
