//! The folders of modules, beside which debug files may be.
//!
//! Stage: symbolize. Must not open files.

use std::path::{Path, PathBuf};

use crate::join::Module;

/// The folder of a module in its own root.
pub(super) fn folder_in_root(module: &Module) -> PathBuf {
    match module.root.as_str() {
        "" => folder(module),
        _ => Path::new(&module.path)
            .parent()
            .unwrap_or(Path::new(""))
            .to_owned(),
    }
}

/// The folder of a module, for debug files beside it. Empty for a module in another root, because a path there leads to
/// another file here.
pub(super) fn folder(module: &Module) -> PathBuf {
    match Path::new(&module.path).parent() {
        Some(folder) if module.root.is_empty() => {
            folder.canonicalize().unwrap_or_else(|_| folder.to_owned())
        }
        _ => PathBuf::new(),
    }
}
