//! Finds the file that has a stripped file's debug information.
//!
//! Stage: symbolize. Where distributions put them: by build id below the system's debug folders,
//! and by the name in the stripped file, there and beside it. A candidate counts only if it is
//! of the same build.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::elf::{ElfFacts, file_crc, open_regular};

/// A debug file.
#[derive(Debug)]
pub(super) struct DebugFile {
    /// Where it is.
    pub(super) path: PathBuf,
    /// The file.
    pub(super) file: File,
    /// Whether it is in a folder that only the system's administrator writes to, so that files
    /// which it names in turn can be opened.
    pub(super) trusted: bool,
}

/// Finds the debug file of a file with these facts. `folder` is where that file itself is, empty if
/// its neighbours are not to be looked at.
pub(super) fn find(facts: &ElfFacts, folder: &Path, debug_dirs: &[PathBuf]) -> Option<DebugFile> {
    let mut candidates = Vec::new();
    if let Some((first, rest)) = facts.build_id.split_first()
        && rest.len() >= 7
    {
        let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
        for dir in debug_dirs {
            let path = dir.join(format!(".build-id/{first:02x}/{rest}.debug"));
            candidates.push((path, true));
        }
    }
    if let Some(link) = &facts.debug_link
        && folder.is_absolute()
    {
        let inside = folder.strip_prefix("/").unwrap_or(folder);
        for dir in debug_dirs {
            candidates.push((dir.join(inside).join(&link.name), true));
        }
        candidates.push((folder.join(&link.name), false));
        candidates.push((folder.join(".debug").join(&link.name), false));
    }
    candidates.into_iter().find_map(|(path, trusted)| {
        let file = open_regular(&path)?;
        let found = ElfFacts::read(&file)?;
        let same = if facts.build_id.is_empty() {
            let crc = facts.debug_link.as_ref()?.crc;
            file_crc(&file).is_ok_and(|found| found == crc)
        } else {
            found.build_id == facts.build_id
        };
        (same && (trusted || !found.names_files)).then_some(DebugFile {
            path,
            file,
            trusted,
        })
    })
}
