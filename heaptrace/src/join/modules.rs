//! Files that were mapped executable, each held open until it has been symbolized.
//!
//! Stage: join. A process may be gone, and its files replaced or deleted, before anybody asks for
//! names; an open descriptor keeps the very file.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::sync::Arc;

use super::update::{Module, ModuleId};

/// Most files that are held open. Beyond it a module is looked for by its path.
const MAX_OPEN: usize = 8192;

/// Every module of a run.
#[derive(Debug, Default)]
pub(super) struct Modules {
    ids: HashMap<(String, Vec<u8>), ModuleId>,
    new: Vec<Module>,
    paths: Vec<String>,
    build_ids: Vec<Vec<u8>>,
    files: OpenFiles,
}

/// The files of modules, as far as they could be opened.
#[derive(Clone, Debug, Default)]
pub struct OpenFiles {
    files: Vec<Option<Arc<File>>>,
    open: usize,
}

impl OpenFiles {
    /// A path under which this process can open a module's file.
    pub fn path(&self, id: ModuleId) -> Option<PathBuf> {
        let file = self.files.get(id.0 as usize)?.as_ref()?;
        Some(format!("/proc/self/fd/{}", file.as_raw_fd()).into())
    }
}

impl Modules {
    /// Id of a module; opens its file where it is new.
    pub(super) fn intern(
        &mut self,
        module: Module,
        open: impl FnOnce() -> Option<File>,
    ) -> ModuleId {
        let key = (module.path.clone(), module.build_id.clone());
        if let Some(id) = self.ids.get(&key) {
            return *id;
        }
        let id = ModuleId(self.paths.len() as u32);
        self.ids.insert(key, id);
        self.paths.push(module.path.clone());
        self.build_ids.push(module.build_id.clone());
        self.new.push(module);
        let file = if self.files.open < MAX_OPEN {
            open()
        } else {
            None
        };
        self.files.open += usize::from(file.is_some());
        self.files.files.push(file.map(Arc::new));
        id
    }

    /// Whether a file is a module's, by its path and, where both are known, its build.
    pub(super) fn is_of(&self, id: ModuleId, path: &str, build_id: &[u8]) -> bool {
        self.path(id) == path
            && self.build_ids.get(id.0 as usize).is_some_and(|own| {
                own.is_empty() || build_id.is_empty() || own.as_slice() == build_id
            })
    }

    /// Path of a module.
    pub(super) fn path(&self, id: ModuleId) -> &str {
        self.paths.get(id.0 as usize).map_or("", String::as_str)
    }

    /// The modules that came since the last call.
    pub(super) fn take_new(&mut self) -> Vec<Module> {
        std::mem::take(&mut self.new)
    }

    /// The open files.
    pub(super) fn files(&self) -> &OpenFiles {
        &self.files
    }

    /// The open files, to keep.
    pub(super) fn into_files(self) -> OpenFiles {
        self.files
    }
}
