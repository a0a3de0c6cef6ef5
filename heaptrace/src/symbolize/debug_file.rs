//! Finds the file with the debug information of a stripped file.
//!
//! Stage: symbolize. Searches the places that distributions use: by build id below the debug folders, and by the
//! name in the stripped file, below these folders and beside the file. Files directly in a debug folder may be named like the stripped file, too.
//! A candidate is accepted only if a reader confirms that it is of the same build.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::debuginfod::{Debuginfod, MIN_BUILD_ID};
use super::protocol::{Facts, FactsQuestion, StrippedFile};
use crate::open::{self, Root};
use crate::proc::build_id;
use crate::reader::{Job, Reader};

/// The system's folder of debug files.
const SYSTEM: &str = "/usr/lib/debug";

/// Where debug files may be, beside the files that they belong to.
#[derive(Clone, Debug, Default)]
pub struct DebugSources {
    /// Folders, in which only those whom the user trusts should be able to write. They are searched in this order.
    pub folders: Vec<PathBuf>,
    /// Servers, which are asked if nothing is found.
    pub debuginfod: Option<Debuginfod>,
}

impl DebugSources {
    /// These folders, and then the system's.
    pub fn in_folders(folders: &[PathBuf]) -> Self {
        let system = PathBuf::from(SYSTEM);
        Self {
            folders: folders.iter().cloned().chain([system]).collect(),
            debuginfod: None,
        }
    }
}

/// Most addresses in one question about a module.
pub(super) const MAX_ADDRESSES: usize = 2048;

/// Most addresses in one question about the types of a module without debug information, which is quickly answered once the file is read.
const MAX_STRIPPED: usize = 16 << 10;

/// The debug information of a module.
#[derive(Debug, Default)]
pub(super) struct Debug {
    /// Its separate debug file, if it has one.
    pub(super) file: Option<DebugFile>,
    /// Whether it may be in several files, by unit.
    pub(super) may_have_parts: bool,
    /// Whether the module's own file has it.
    pub(super) is_own: bool,
}

impl Debug {
    /// Most addresses in one question about types.
    pub(super) fn most_addresses(&self) -> usize {
        match self.is_own || self.file.is_some() {
            true => MAX_ADDRESSES,
            false => MAX_STRIPPED,
        }
    }
}

/// A debug file.
#[derive(Debug)]
pub(super) struct DebugFile {
    /// The file.
    pub(super) file: File,
    /// Its path.
    pub(super) path: PathBuf,
    /// Whether it refers to other files. Only a file in a folder that the administrator alone can write to may do so.
    pub(super) names_files: bool,
    /// Whether parts of its DWARF may be in other files, by unit.
    pub(super) may_have_parts: bool,
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

/// Finds the debug file of a file with these facts and this name. `folder` is the folder of that file; if it is empty, files beside it
/// are not searched.
pub(super) fn find(
    reader: &mut Reader,
    facts: &Facts,
    name: &str,
    folder: &Path,
    sources: &mut DebugSources,
) -> Option<DebugFile> {
    let of = StrippedFile {
        build_id: facts.build_id.clone(),
        crc: facts.debug_link.as_ref().map(|(_, crc)| *crc),
    };
    let found = candidates(facts, name, folder, &sources.folders)
        .into_iter()
        .find_map(|(path, is_trusted)| take(reader, path, is_trusted, &of));
    let (file, path, found) = found.or_else(|| {
        let fetched = sources.fetch(&facts.build_id, name)?;
        take(reader, fetched, true, &of)
    })?;
    let shared = found.alt_link.and_then(|(path, build_id)| {
        let file = find_shared(reader, Path::new(&path), &build_id, name, sources)?;
        Some((path, file))
    });
    Some(DebugFile {
        file,
        path,
        names_files: found.names_files,
        may_have_parts: found.may_have_parts,
        shared,
    })
}

/// Opens a candidate, if it is the debug file of a stripped file. Only a trusted file may refer to others.
fn take(
    reader: &mut Reader,
    path: PathBuf,
    is_trusted: bool,
    of: &StrippedFile,
) -> Option<(File, PathBuf, Facts)> {
    let opened = if is_trusted {
        open::named(&path).ok()?
    } else {
        Root::own().ok()?.open(&path).ok()?
    };
    let name = path.display().to_string();
    let found = facts(reader, &name, &opened.file, Some(of.clone()))?;
    let is_accepted = found.is_wanted && (is_trusted || !found.names_files);
    is_accepted.then_some((opened.file, path, found))
}

/// Opens the supplementary file that a debug file of the file with this name refers to by a path and a build id.
fn find_shared(
    reader: &mut Reader,
    path: &Path,
    build_id: &[u8],
    name: &str,
    sources: &mut DebugSources,
) -> Option<File> {
    let of = StrippedFile {
        build_id: build_id.to_vec(),
        crc: None,
    };
    let folders = &sources.folders;
    let mut candidates = Vec::new();
    if folders.iter().any(|folder| path.starts_with(folder)) {
        candidates.push(path.to_owned());
    }
    if let Ok(inside) = path.strip_prefix(SYSTEM) {
        candidates.extend(folders.iter().map(|folder| folder.join(inside)));
    }
    if let Some(by_id) = build_id::debug_file(build_id) {
        candidates.extend(folders.iter().map(|folder| folder.join(&by_id)));
    }
    let found = candidates
        .into_iter()
        .find_map(|path| take(reader, path, true, &of));
    let found = found.or_else(|| take(reader, sources.fetch(build_id, name)?, true, &of));
    found.map(|(file, ..)| file)
}

impl DebugSources {
    fn fetch(&mut self, build_id: &[u8], name: &str) -> Option<PathBuf> {
        self.debuginfod.as_mut()?.fetch(build_id, name)
    }
}

/// Paths where the debug file may be, each with whether it is trusted: only the administrator can write there.
fn candidates(
    facts: &Facts,
    name: &str,
    folder: &Path,
    debug_dirs: &[PathBuf],
) -> Vec<(PathBuf, bool)> {
    let mut candidates = Vec::new();
    if facts.build_id.len() >= MIN_BUILD_ID
        && let Some(path) = build_id::debug_file(&facts.build_id)
    {
        candidates.extend(debug_dirs.iter().map(|dir| (dir.join(&path), true)));
        if is_plain(name) {
            candidates.extend(debug_dirs.iter().map(|dir| (dir.join(name), true)));
        }
    }
    let debug_link = facts.debug_link.as_ref().map(|(name, _)| name);
    let debug_link = debug_link.filter(|name| is_plain(name));
    if let Some(name) = debug_link {
        candidates.extend(debug_dirs.iter().map(|dir| (dir.join(name), true)));
    }
    if let Some(name) = debug_link
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
pub(super) fn is_plain(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains('/')
}
