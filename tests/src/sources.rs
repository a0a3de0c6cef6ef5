//! Reads the project's own sources, for tests about their form.
//!
//! Part of the harness. It doesn't look into them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::paths::workspace;

/// A source file.
pub struct Source {
    /// Its path, from the folder that was searched.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
}

/// All `.rs` files below a folder of the workspace, sorted.
pub fn rust_sources(folder: &str) -> Result<Vec<Source>> {
    collected(&workspace().join(folder), &["rs"])
}

/// All files of the project with these extensions, sorted. Build results and hidden folders are left out.
pub fn project_texts(extensions: &[&str]) -> Result<Vec<Source>> {
    collected(workspace(), extensions)
}

fn collected(root: &Path, extensions: &[&str]) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    collect(root, root, extensions, &mut sources)?;
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

fn collect(
    root: &Path,
    folder: &Path,
    extensions: &[&str],
    sources: &mut Vec<Source>,
) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("no {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name != "target" && !name.starts_with('.') {
                collect(root, &path, extensions, sources)?;
            }
        } else if path
            .extension()
            .is_some_and(|it| extensions.iter().any(|extension| it == *extension))
        {
            sources.push(Source {
                text: fs::read_to_string(&path)?,
                path: path.strip_prefix(root)?.to_owned(),
            });
        }
    }
    Ok(())
}
