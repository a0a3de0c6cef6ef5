//! Finds the files of a program's debug information that are kept by unit (split DWARF), and passes them to a reader.
//!
//! Stage: symbolize. A package (`.dwp`) is searched beside the program, beside its debug file, and in the debug folders. The file of a unit
//! (`.dwo`) is searched in the debug folders, where the compiler has written it, and beside the program. The paths come from the program, so
//! outside of the debug folders only files of the program's own user are opened. The reader uses a file only if it has the id of a unit that it
//! needs. Must not know what is in the files.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use super::debug_file::is_plain;
use super::debuginfod::MIN_BUILD_ID;
use super::protocol::{MAX_PATH, MAX_WANTED, UnitsAnswer, UnitsQuestion, WantedUnit};
use super::split::MAX_HELD;
use crate::open::{self, Root};
use crate::proc::build_id;
use crate::reader::{Job, MAX_FILES, Reader};
use crate::text::file_name;

/// Most files of units that are passed for a program.
const MAX_UNITS: usize = 4096;

/// Files that one question has room for, beside the program and its debug file.
const PER_QUESTION: usize = MAX_FILES - 2;

/// A program, and where the parts of its debug information may be.
pub(super) struct Places<'p> {
    /// Its path, in its root folder.
    pub(super) program: &'p str,
    /// The folder that it is in; empty if it is not known.
    pub(super) folder: &'p Path,
    /// Its root folder, if it is another one than that of this process.
    pub(super) root: &'p str,
    pub(super) build_id: &'p [u8],
    /// The program itself, if it is at hand, else its debug file.
    pub(super) file: &'p File,
    /// Its debug file and that file's path, if it has no debug information of its own.
    pub(super) debug: Option<(&'p File, &'p Path)>,
    /// The debug folders.
    pub(super) folders: &'p [PathBuf],
}

/// What was passed for a program.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Whether all debug information is in one file, after all.
    is_whole: bool,
    /// The packages; `None` until they are searched for.
    packages: Option<Vec<File>>,
    passed: HashSet<u64>,
    bytes: u64,
    missing: HashSet<u64>,
    first_missing: Option<PathBuf>,
    left_out: u64,
}

impl Parts {
    /// Passes the units that a reader needs for offsets in a program, or for its addresses.
    pub(super) fn pass(
        &mut self,
        reader: &mut Reader,
        places: &Places<'_>,
        offsets: &[u64],
        are_addresses: bool,
    ) {
        if self.is_whole {
            return;
        }
        let question = UnitsQuestion {
            offsets: offsets.to_vec(),
            are_addresses,
            has_debug: places.debug.is_some(),
            packages: 0,
        };
        let Some(mut answer) = ask(reader, places, &question, &[]) else {
            self.is_whole = true;
            return;
        };
        if answer.wanted.is_empty() {
            return;
        }
        let packages = self.packages.get_or_insert_with(|| places.packages());
        if !packages.is_empty() {
            let with = UnitsQuestion {
                packages: packages.len(),
                ..question.clone()
            };
            answer = ask(reader, places, &with, packages).unwrap_or_default();
        }
        self.left_out += answer.left_out;
        let mut files = Vec::new();
        for unit in &answer.wanted {
            let is_new = !self.passed.contains(&unit.id);
            if is_new && (self.passed.len() >= MAX_UNITS || self.bytes > MAX_HELD) {
                self.left_out += 1;
                continue;
            }
            for file in places.unit(unit) {
                if is_new {
                    self.bytes += file.metadata().map_or(0, |meta| meta.len());
                }
                files.push(file);
            }
            self.passed.insert(unit.id);
        }
        let only_files = UnitsQuestion {
            offsets: Vec::new(),
            ..question.clone()
        };
        for files in files.chunks(PER_QUESTION) {
            ask(reader, places, &only_files, files);
        }
        let missing = ask(reader, places, &question, &[]).unwrap_or_default();
        for unit in missing.wanted {
            if self.first_missing.is_none() {
                self.first_missing = Some(path_of(&unit));
            }
            if self.missing.len() < MAX_UNITS {
                self.missing.insert(unit.id);
            }
        }
    }

    /// What is not known of a program because its parts were not found, or are too many.
    pub(super) fn gaps(&self, program: &str) -> Vec<String> {
        let mut gaps = Vec::new();
        if let Some(first) = &self.first_missing {
            gaps.push(format!(
                "no inlined functions from {} units of {program}: their debug information is in other files, which were not found (the first: {})",
                self.missing.len(),
                first.display()
            ));
        }
        if self.left_out > 0 {
            gaps.push(format!(
                "no inlined functions from {} units of {program}: of its other files with debug information, {MAX_UNITS} are read, and {} MiB",
                self.left_out,
                MAX_HELD >> 20
            ));
        }
        gaps
    }
}

/// Asks which units a reader needs, and passes files. `None` if the program has none.
fn ask(
    reader: &mut Reader,
    places: &Places<'_>,
    question: &UnitsQuestion,
    parts: &[File],
) -> Option<UnitsAnswer> {
    let mut files = vec![places.file];
    files.extend(places.debug.map(|(file, _)| file));
    files.extend(parts);
    let answer: Option<UnitsAnswer> = reader
        .ask(Job::Units, question, places.program, &files)
        .ok()
        .flatten();
    let is_sound = |unit: &WantedUnit| unit.folder.len() <= MAX_PATH && unit.name.len() <= MAX_PATH;
    answer.filter(|it| it.wanted.len() <= MAX_WANTED && it.wanted.iter().all(is_sound))
}

/// The path of a unit's file, as the compiler wrote it.
fn path_of(unit: &WantedUnit) -> PathBuf {
    let [folder, name] = [&unit.folder, &unit.name].map(|it| Path::new(OsStr::from_bytes(it)));
    folder.join(name)
}

impl Places<'_> {
    /// The packages that may have units of the program.
    fn packages(&self) -> Vec<File> {
        let named = format!("{}.dwp", file_name(self.program));
        let mut inside = Vec::new();
        if self.build_id.len() >= MIN_BUILD_ID
            && let Some(path) = build_id::debug_file(self.build_id)
        {
            inside.push(path.with_extension("dwp"));
            inside.push(with_dwp(&path));
        }
        if is_plain(&named) {
            inside.push(PathBuf::from(&named));
            inside.extend(below(&self.folder.join(&named)));
        }
        let mut beside = vec![self.folder.join(&named)];
        if let Some((_, debug)) = self.debug {
            beside.push(with_dwp(debug));
            beside.push(debug.with_extension("dwp"));
        }
        self.open(&inside, &beside)
    }

    /// The files that may have a unit.
    fn unit(&self, unit: &WantedUnit) -> Vec<File> {
        let path = path_of(unit);
        let name = Path::new(OsStr::from_bytes(&unit.name));
        let base = name.file_name().map(PathBuf::from);
        let inside: Vec<PathBuf> = below(&path).into_iter().chain(base.clone()).collect();
        let beside = [Some(path), base.map(|base| self.folder.join(base))];
        let beside: Vec<PathBuf> = beside.into_iter().flatten().collect();
        self.open(&inside, &beside)
    }

    /// Opens those that are there of paths inside of the debug folders, and of paths that the program names.
    fn open(&self, inside: &[PathBuf], beside: &[PathBuf]) -> Vec<File> {
        let paths = self
            .folders
            .iter()
            .flat_map(|folder| inside.iter().map(|path| folder.join(path)));
        let mut files: Vec<File> = paths
            .filter_map(|path| Some(open::named(&path).ok()?.file))
            .collect();
        let root = match self.root {
            "" => Root::own(),
            root => Root::at(Path::new(root)),
        };
        if let (Ok(root), Ok(own)) = (root, self.file.metadata()) {
            let absolute = beside.iter().filter(|path| path.is_absolute());
            let opened = absolute.filter_map(|path| root.open_owned(path, own.uid()).ok());
            files.extend(opened.map(|it| it.file));
        }
        files.truncate(PER_QUESTION);
        files
    }
}

fn with_dwp(path: &Path) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(".dwp");
    PathBuf::from(path)
}

/// An absolute path, relative to `/`. `None` if it could lead out of a folder that it is searched in.
fn below(path: &Path) -> Option<PathBuf> {
    let inside = path.strip_prefix("/").ok()?;
    let is_plain = |part| matches!(part, Component::Normal(_));
    inside.components().all(is_plain).then(|| inside.to_owned())
}
