//! Finds the file that has a stripped file's debug information.
//!
//! Stage: symbolize. Where distributions put them: by build id below the system's debug folders,
//! and by the name in the stripped file, there and beside it. A candidate counts only if a reader says that it is
//! of the same build.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::answer::{Facts, FactsQuestion, Stripped};
use crate::open::{self, Root};
use crate::proc::build_id;
use crate::reader::{Job, Reader};

/// Shortest build id that a debug file is looked for by.
const LEAST_BUILD_ID: usize = 8;

/// A debug file.
#[derive(Debug)]
pub(super) struct DebugFile {
    /// The file.
    pub(super) file: File,
    /// Where it is, if it may name others: it is in a folder that only the system's administrator writes to.
    pub(super) path: Option<PathBuf>,
    /// What it shares with other debug files, and the path by which it names that.
    pub(super) shared: Option<(String, File)>,
}

/// What a file says of itself; `None` where it is no ELF file, or can't be read.
pub(super) fn facts(
    reader: &mut Reader,
    name: &str,
    file: &File,
    of: Option<Stripped>,
) -> Option<Facts> {
    let question = FactsQuestion { of };
    let facts: Option<Facts> = reader
        .ask(Job::Facts, &question, name, &[file])
        .ok()
        .flatten();
    facts.filter(|facts| facts.build_id.len() <= build_id::MAX_BYTES)
}

/// Finds the debug file of a file with these facts. `folder` is where that file itself is, empty if
/// its neighbours are not to be looked at.
pub(super) fn find(
    reader: &mut Reader,
    facts: &Facts,
    folder: &Path,
    debug_dirs: &[PathBuf],
) -> Option<DebugFile> {
    let of = Stripped {
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
            let told = self::facts(reader, &name, &opened.file, Some(of.clone()))?;
            if !told.is_wanted || told.names_files && !is_trusted {
                return None;
            }
            let shared = told.alt_link.filter(|_| is_trusted).and_then(|path| {
                let is_in_folder = |dir: &PathBuf| Path::new(&path).starts_with(dir);
                let opened = debug_dirs
                    .iter()
                    .any(is_in_folder)
                    .then(|| open::named(Path::new(&path)).ok());
                Some((path, opened.flatten()?.file))
            });
            Some(DebugFile {
                file: opened.file,
                path: Some(path).filter(|_| told.names_files),
                shared,
            })
        })
}

/// Where the debug file may be, and whether only the system's administrator can have put it there.
fn candidates(facts: &Facts, folder: &Path, debug_dirs: &[PathBuf]) -> Vec<(PathBuf, bool)> {
    let mut candidates = Vec::new();
    if facts.build_id.len() >= LEAST_BUILD_ID
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

/// Whether a name is one without a folder.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains('/')
}
