//! Finds the file with the debug information of a stripped file.
//!
//! Stage: symbolize. Searches the places that distributions use: by build id below the system's debug folders, and by the
//! name in the stripped file, below these folders and beside the file. A candidate is accepted only if a reader confirms
//! that it is of the same build.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::protocol::{Facts, FactsQuestion, StrippedFile};
use crate::open::{self, Root};
use crate::proc::build_id;
use crate::reader::{Job, Reader};

/// The shortest build id that is used to search for a debug file, in bytes.
const MIN_BUILD_ID: usize = 8;

/// A debug file.
#[derive(Debug)]
pub(super) struct DebugFile {
    /// The file.
    pub(super) file: File,
    /// Its path, if it refers to other files. Only a file in a folder that the administrator alone can write to may do so.
    pub(super) path: Option<PathBuf>,
    /// The supplementary file that it shares with other debug files, and the path by which it refers to that file.
    pub(super) shared: Option<(String, File)>,
}

/// Facts about a file; `None` if it is not an ELF file, or can't be read.
pub(super) fn facts(
    reader: &mut Reader,
    name: &str,
    file: &File,
    of: Option<StrippedFile>,
) -> Option<Facts> {
    let question = FactsQuestion { of };
    let facts: Option<Facts> = reader
        .ask(Job::Facts, &question, name, &[file])
        .ok()
        .flatten();
    facts.filter(|facts| facts.build_id.len() <= build_id::MAX_BYTES)
}

/// Finds the debug file of a file with these facts. `folder` is the folder of that file; if it is empty, files beside it
/// are not searched.
pub(super) fn find(
    reader: &mut Reader,
    facts: &Facts,
    folder: &Path,
    debug_dirs: &[PathBuf],
) -> Option<DebugFile> {
    let of = StrippedFile {
        build_id: facts.build_id.clone(),
        crc: facts.debug_link.as_ref().map(|(_, crc)| *crc),
    };
    candidates(facts, folder, debug_dirs)
        .into_iter()
        .find_map(|(path, is_trusted)| {
            let opened = if is_trusted {
                open::named(&path).ok()?
            } else {
                Root::own().ok()?.open(&path).ok()?
            };
            let name = path.display().to_string();
            let found = self::facts(reader, &name, &opened.file, Some(of.clone()))?;
            if !found.is_wanted || found.names_files && !is_trusted {
                return None;
            }
            let shared = found.alt_link.filter(|_| is_trusted).and_then(|path| {
                let is_in_folder = |dir: &PathBuf| Path::new(&path).starts_with(dir);
                let opened = debug_dirs
                    .iter()
                    .any(is_in_folder)
                    .then(|| open::named(Path::new(&path)).ok());
                Some((path, opened.flatten()?.file))
            });
            Some(DebugFile {
                file: opened.file,
                path: Some(path).filter(|_| found.names_files),
                shared,
            })
        })
}

/// Paths where the debug file may be, each with whether it is trusted: only the administrator can write there.
fn candidates(facts: &Facts, folder: &Path, debug_dirs: &[PathBuf]) -> Vec<(PathBuf, bool)> {
    let mut candidates = Vec::new();
    if facts.build_id.len() >= MIN_BUILD_ID
        && let Some(path) = build_id::debug_file(&facts.build_id)
    {
        candidates.extend(debug_dirs.iter().map(|dir| (dir.join(&path), true)));
    }
    if let Some((name, _)) = &facts.debug_link
        && is_plain(name)
        && folder.is_absolute()
    {
        let inside = folder.strip_prefix("/").unwrap_or(folder);
        for dir in debug_dirs {
            candidates.push((dir.join(inside).join(name), true));
        }
        candidates.push((folder.join(name), false));
        candidates.push((folder.join(".debug").join(name), false));
    }
    candidates
}

/// Whether a name has no folder in it.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains('/')
}
