//! Selects the files to inspect for allocators: those of a process, of a command before it runs, a file that was just
//! mapped, and files that the user names.
//!
//! Stage: probes. Must not know the contents of files.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::ask::{Search, finding};
use super::model::{Allocator, Finding, Unprobed};
use crate::config::NamedAllocator;
use crate::open::{self, FileId, NotOpened, Opened, Root};
use crate::probes::image;
use crate::probes::launch;
use crate::proc::maps;
use crate::reader::Reader;

/// Most words of a command that are checked for programs that it may start.
const MAX_WORDS: usize = 16;

/// What is searched for in addition to known allocators.
#[derive(Clone, Copy, Debug, Default)]
pub struct LookFor<'n> {
    /// Files that the user names as allocators.
    pub named: &'n [NamedAllocator],
    /// Whether functions that map memory are wanted as well.
    pub mappings: bool,
}

/// The result of a search.
#[derive(Debug, Default)]
pub struct Found {
    /// Allocators that can be probed.
    pub allocators: Vec<Allocator>,
    /// Allocators that can't be probed.
    pub unprobed: Vec<Unprobed>,
    seen: HashSet<FileId>,
}

impl Found {
    fn inspect(&mut self, reader: &mut Reader, file: Opened, path: String, search: Search<'_>) {
        if self.seen.insert(file.identity.file) {
            self.add(finding(reader, file, path, search));
        }
    }

    /// Reports a file that could not be opened, unless the cause is that its process ends.
    fn not_opened(&mut self, path: &str, error: &NotOpened) {
        if matches!(error, NotOpened::TooLong) {
            self.unprobed.push(Unprobed {
                path: path.to_owned(),
                reason: error.to_string(),
            });
        }
    }

    fn add(&mut self, finding: Finding) {
        match finding {
            Finding::Allocator(allocator) => self.allocators.push(allocator),
            Finding::Unprobed(unprobed) => self.unprobed.push(unprobed),
            Finding::Nothing => {}
        }
    }
}

/// How thoroughly a process is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Includes symbols of all debug files.
    Thorough,
    /// Includes symbols of the debug file of its program only.
    Quick,
}

/// A file by the numbers that `/proc/PID/maps` shows.
pub type Numbers = ((u32, u32), u64);

/// Finds the allocators that a process has mapped. Skips files that were searched already, and adds those that are searched
/// now: not one whose process ends before it is opened, because the next process may have it as well.
pub fn of_process(
    reader: &mut Reader,
    pid: u32,
    wanted: LookFor<'_>,
    effort: Effort,
    searched: &mut HashSet<Numbers>,
) -> std::io::Result<Found> {
    let thread = maps::living_thread(pid);
    let text = maps::read(thread)?;
    let program = fs::read_link(format!("/proc/{thread}/exe")).unwrap_or_default();
    let root = Root::of_process(thread).ok();
    let mut found = Found::default();
    for mapping in maps::parse(&text).filter(|it| it.executable && it.inode != 0) {
        let numbers = (mapping.device, mapping.inode);
        if searched.contains(&numbers) {
            continue;
        }
        let file = match maps::open_mapped(thread, &mapping) {
            Ok(file) => file,
            Err(error) => {
                found.not_opened(&mapping.path, &error);
                continue;
            }
        };
        searched.insert(numbers);
        let is_thorough = effort == Effort::Thorough || Path::new(&mapping.path) == program;
        let search = Search {
            root: root.as_ref().filter(|_| is_thorough),
            named: name_of(&file, wanted.named),
            mappings: wanted.mappings,
        };
        found.inspect(reader, file, mapping.path, search);
    }
    Ok(found)
}

/// Inspects any file as if the user had named it as an allocator without a prefix.
pub fn of_file(reader: &mut Reader, path: &Path) -> Result<Found, NotOpened> {
    let mut found = Found::default();
    let root = Root::own()?;
    let search = Search {
        root: Some(&root),
        named: Some(""),
        mappings: false,
    };
    found.inspect(
        reader,
        open::named(path)?,
        path.display().to_string(),
        search,
    );
    Ok(found)
}

/// Inspects a file that a process has just mapped.
pub fn of_mapped(
    reader: &mut Reader,
    pid: u32,
    file: Opened,
    path: String,
    wanted: LookFor<'_>,
) -> Found {
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let is_program = Path::new(&path) == program;
    let root = if is_program {
        Root::of_process(pid).ok()
    } else {
        None
    };
    let mut found = Found::default();
    let search = Search {
        root: root.as_ref(),
        named: name_of(&file, wanted.named),
        mappings: wanted.mappings,
    };
    found.inspect(reader, file, path, search);
    found
}

/// The files with code that a command may map when it runs, found before it runs.
///
/// These are the program, its libraries and those of `LD_PRELOAD`, and the same for programs among the
/// words of the command, as in `env PROGRAM`.
pub fn files_of_command(reader: &mut Reader, words: &[OsString]) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for (index, word) in words.iter().take(MAX_WORDS).enumerate() {
        let text = word.to_string_lossy();
        if let Some(list) = text.strip_prefix("LD_PRELOAD=") {
            paths.extend(preloaded(list));
        } else if let Some(program) = launch::look_up(word)
            && (index == 0 || is_program(&program))
        {
            paths.extend(image::files_of(reader, &program));
        }
    }
    if let Ok(list) = std::env::var("LD_PRELOAD") {
        paths.extend(preloaded(&list));
    }
    let mut seen = HashSet::new();
    paths
        .into_iter()
        .filter_map(|path| fs::canonicalize(path).ok())
        .filter(|path| seen.insert(path.clone()))
        .collect()
}

/// Finds the allocators in the files of a command (see [`files_of_command`]), and in the system's C library for
/// programs that the command starts.
pub fn of_command(reader: &mut Reader, files: Vec<PathBuf>, wanted: LookFor<'_>) -> Found {
    let mut paths = files;
    paths.extend(wanted.named.iter().map(|named| named.path.clone()));
    paths.extend(
        image::library_folders()
            .iter()
            .map(|folder| folder.join("libc.so.6")),
    );
    let root = Root::own().ok();
    let mut found = Found::default();
    for path in paths {
        let Ok(path) = fs::canonicalize(path) else {
            continue;
        };
        let file = match open::named(&path) {
            Ok(file) => file,
            Err(error) => {
                found.not_opened(&path.display().to_string(), &error);
                continue;
            }
        };
        let search = Search {
            root: root.as_ref(),
            named: name_of(&file, wanted.named),
            mappings: wanted.mappings,
        };
        found.inspect(reader, file, path.display().to_string(), search);
    }
    found
}

/// The prefix of a file's functions, if the user names the file as an allocator.
fn name_of<'n>(file: &Opened, named: &'n [NamedAllocator]) -> Option<&'n str> {
    let is_it = |named: &&NamedAllocator| {
        let other = open::named(&named.path);
        other.is_ok_and(|other| other.identity.file == file.identity.file)
    };
    named.iter().find(is_it).map(|named| named.prefix.as_str())
}

/// The files that a value of `LD_PRELOAD` may name.
fn preloaded(list: &str) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for name in list.split([':', ' ']).filter(|name| !name.is_empty()) {
        if name.contains('/') {
            paths.push(name.into());
        } else {
            paths.extend(
                image::library_folders()
                    .iter()
                    .map(|folder| folder.join(name)),
            );
        }
    }
    paths
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}
