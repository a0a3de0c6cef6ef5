//! Where allocators are looked for: in a process, in a command before it runs, in a file that was
//! just mapped, and where the user says.
//!
//! Stage: probes. Knows which files to look at, not what is in them.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::inspect::{Search, inspect};
use super::model::{Allocator, FileId, Finding, Unprobed};
use crate::config::NamedAllocator;
use crate::probes::image::image_of;
use crate::probes::launch;
use crate::probes::maps::{self, Mapping};

/// Most words of a command that are looked at for programs that it may start.
const MAX_WORDS: usize = 16;

/// What is looked for beside the allocators that are known.
#[derive(Clone, Copy, Debug, Default)]
pub struct LookFor<'n> {
    /// Files that the user says are allocators.
    pub named: &'n [NamedAllocator],
    /// Whether functions that map memory are wanted, too.
    pub mappings: bool,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// What can be probed.
    pub allocators: Vec<Allocator>,
    /// What can't.
    pub unprobed: Vec<Unprobed>,
    seen: HashSet<FileId>,
}

impl Found {
    fn look(&mut self, file: File, path: String, search: Search<'_>) {
        let Ok(id) = FileId::of(&file) else { return };
        if !self.seen.insert(id) {
            return;
        }
        self.add(inspect(file, path, search));
    }

    fn add(&mut self, finding: Finding) {
        match finding {
            Finding::Allocator(allocator) => self.allocators.push(allocator),
            Finding::Unprobed(unprobed) => self.unprobed.push(unprobed),
            Finding::Nothing => {}
        }
    }
}

/// How hard to look at a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// For symbols in debug files, too.
    Thorough,
    /// For symbols in debug files of its program only.
    Quick,
}

/// The allocators that a process has mapped.
pub fn of_process(
    pid: u32,
    wanted: LookFor<'_>,
    effort: Effort,
    mut is_known: impl FnMut(&Mapping) -> bool,
) -> std::io::Result<Found> {
    let thread = maps::living_thread(pid);
    let text = maps::read(thread)?;
    let program = fs::read_link(format!("/proc/{thread}/exe")).unwrap_or_default();
    let root = PathBuf::from(format!("/proc/{thread}/root"));
    let mut found = Found::default();
    let mut seen = HashSet::new();
    let mappings = maps::parse(&text)
        .filter(|mapping| mapping.executable && mapping.inode != 0)
        .filter(|mapping| seen.insert((mapping.device, mapping.inode)));
    for mapping in mappings {
        if is_known(&mapping) {
            continue;
        }
        let Ok(file) = maps::open_mapped(thread, &mapping) else {
            continue;
        };
        let is_searched = effort == Effort::Thorough || Path::new(&mapping.path) == program;
        let search = Search {
            root: is_searched.then_some(root.as_path()),
            named: name_of(&file, wanted.named),
            mappings: wanted.mappings,
        };
        found.look(file, mapping.path, search);
    }
    Ok(found)
}

/// What is in a file, taken for an allocator by the names of its functions, whatever it is.
pub fn of_file(path: &Path) -> std::io::Result<Found> {
    let mut found = Found::default();
    let search = Search {
        root: Some(Path::new("/")),
        named: Some(""),
        mappings: false,
    };
    found.look(File::open(path)?, path.display().to_string(), search);
    Ok(found)
}

/// What is in a file that a process has just mapped.
pub fn of_mapped(pid: u32, file: File, path: String, wanted: LookFor<'_>) -> Found {
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let mut found = Found::default();
    let search = Search {
        root: (Path::new(&path) == program).then_some(root.as_path()),
        named: name_of(&file, wanted.named),
        mappings: wanted.mappings,
    };
    found.look(file, path, search);
    found
}

/// The files with code that a command may map once it runs: there is none to look at before.
///
/// The program, its libraries, what `LD_PRELOAD` names, and the same of programs that are named among
/// its words, as `env` has them.
pub fn files_of_command(words: &[OsString]) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for (index, word) in words.iter().take(MAX_WORDS).enumerate() {
        let text = word.to_string_lossy();
        if let Some(list) = text.strip_prefix("LD_PRELOAD=") {
            paths.extend(preloaded(list));
        } else if let Some(program) = launch::look_up(word)
            && (index == 0 || is_program(&program))
            && let Some(image) = image_of(&program)
        {
            paths.extend(image.files());
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

/// The allocators that a command may map once it runs, and the system's C library, for whatever it
/// starts.
pub fn of_command(words: &[OsString], wanted: LookFor<'_>) -> Found {
    let mut paths = files_of_command(words);
    paths.extend(wanted.named.iter().map(|named| named.path.clone()));
    paths.extend(
        library_folders()
            .iter()
            .map(|folder| folder.join("libc.so.6")),
    );
    let mut found = Found::default();
    for path in paths {
        let Ok(path) = fs::canonicalize(path) else {
            continue;
        };
        let Ok(file) = File::open(&path) else {
            continue;
        };
        let search = Search {
            root: Some(Path::new("/")),
            named: name_of(&file, wanted.named),
            mappings: wanted.mappings,
        };
        found.look(file, path.display().to_string(), search);
    }
    found
}

/// The prefix by which the user names a file an allocator.
fn name_of<'n>(file: &File, named: &'n [NamedAllocator]) -> Option<&'n str> {
    if named.is_empty() {
        return None;
    }
    let id = FileId::of(file).ok()?;
    let is_it = |named: &&NamedAllocator| {
        File::open(&named.path)
            .and_then(|file| FileId::of(&file))
            .is_ok_and(|other| other == id)
    };
    named.iter().find(is_it).map(|named| named.prefix.as_str())
}

/// The files that a list of libraries to preload names.
fn preloaded(list: &str) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for name in list.split([':', ' ']).filter(|name| !name.is_empty()) {
        if name.contains('/') {
            paths.push(name.into());
        } else {
            paths.extend(library_folders().iter().map(|folder| folder.join(name)));
        }
    }
    paths
}

/// Where the dynamic loader looks for libraries: what its user names, and the system's own.
fn library_folders() -> Vec<PathBuf> {
    let arch = std::env::consts::ARCH;
    let mut folders: Vec<PathBuf> = Vec::new();
    if let Some(paths) = std::env::var_os("LD_LIBRARY_PATH") {
        folders.extend(std::env::split_paths(&paths));
    }
    folders.extend([
        format!("/lib/{arch}-linux-gnu").into(),
        format!("/usr/lib/{arch}-linux-gnu").into(),
        "/lib64".into(),
        "/usr/lib64".into(),
        "/usr/lib".into(),
        "/usr/local/lib".into(),
    ]);
    folders
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}
