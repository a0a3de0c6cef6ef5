//! Finds the files that a program maps when it starts: its own file, its dynamic loader, and its libraries.
//!
//! Stage: probes. Nothing is started for this. A reader parses what a file needs, and this folder searches for it where the
//! dynamic loader would. Must not know what the files are used for.

mod cache;
mod needs;

use std::collections::{HashSet, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::launch;
use crate::open;
use crate::reader::{Job, Reader};

pub(crate) use needs::answer;
pub use needs::{Needs, interpreter, needs};

/// Most files of a program; further ones are ignored.
const MAX_FILES: usize = 512;

/// Longest chain of scripts that are interpreters of each other.
const MAX_SCRIPTS: usize = 4;

/// The dynamic loader's cache of libraries.
const CACHE: &str = "/etc/ld.so.cache";

/// A needed file, with the folders that are searched for its own libraries.
struct Wanted {
    path: PathBuf,
    /// `RPATH` folders of the files that need it, which are searched for its own libraries as well.
    inherited: Vec<PathBuf>,
}

/// The files with code that a program maps when it starts: its own file (for a script, the interpreter's), the dynamic
/// loader, and all libraries. If a script's interpreter is `env`, also those of the program that this starts.
pub fn files_of(reader: &mut Reader, program: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut next = Some(program.to_owned());
    for _ in 0..MAX_SCRIPTS {
        let Some(image) = next.and_then(|program| image_of(reader, &program)) else {
            break;
        };
        next = image.by_env.clone();
        files.extend(mapped_by(reader, image));
    }
    // The C library lists the loader among its libraries.
    let mut seen = HashSet::new();
    files.retain(|path| seen.insert(path.canonicalize().unwrap_or_else(|_| path.clone())));
    files
}

/// The files that a program maps.
fn mapped_by(reader: &mut Reader, image: Image) -> Vec<PathBuf> {
    let Image {
        program,
        needs: first,
        ..
    } = image;
    let mut files = vec![program.clone()];
    let mut seen = HashSet::new();
    let cache = cache::Cache::read(Path::new(CACHE));
    let mut queue = VecDeque::from([(
        Wanted {
            path: program,
            inherited: Vec::new(),
        },
        first.clone(),
    )]);
    while let Some((wanted, needs)) = queue.pop_front() {
        let origin = wanted.path.canonicalize().unwrap_or(wanted.path);
        let origin = origin.parent().unwrap_or(Path::new("/"));
        let mut inherited = wanted.inherited;
        // `RUNPATH`, the newer kind, is for a file's own libraries alone and disables `RPATH`.
        if needs.run_path.is_empty() {
            inherited.extend(folders(&needs.old_path, origin));
        }
        let own = folders(&needs.run_path, origin);
        for name in &needs.libraries {
            if files.len() >= MAX_FILES || !seen.insert(name.clone()) {
                continue;
            }
            let Some(path) = find(&needs::path(name), &inherited, &own, &cache) else {
                continue;
            };
            let needed = ask(reader, &path);
            files.push(path.clone());
            if let Some(needed) = needed {
                let inherited = inherited.clone();
                queue.push_back((Wanted { path, inherited }, needed));
            }
        }
    }
    files.extend(first.loader.as_deref().map(needs::path));
    files
}

/// The program that runs when a file is started.
struct Image {
    /// For a script, this is the interpreter.
    program: PathBuf,
    needs: Needs,
    /// What it starts, if it is `env` and a script names it.
    by_env: Option<PathBuf>,
}

/// The program that runs when a file is started, with what it needs.
fn image_of(reader: &mut Reader, program: &Path) -> Option<Image> {
    let mut path = program.to_owned();
    let mut by_env = None;
    for _ in 0..MAX_SCRIPTS {
        let needs = ask(reader, &path)?;
        match &needs.script {
            Some(interpreter) => {
                path = needs::path(interpreter);
                by_env = started_by_env(&path, &needs.arguments);
            }
            None => {
                return Some(Image {
                    program: path,
                    needs,
                    by_env,
                });
            }
        }
    }
    None
}

/// The program that `env` starts, as in `#!/usr/bin/env python3`.
fn started_by_env(interpreter: &Path, arguments: &[u8]) -> Option<PathBuf> {
    if interpreter.file_name()? != "env" {
        return None;
    }
    let mut words = arguments.split(u8::is_ascii_whitespace);
    // Options and variables come first.
    let is_name =
        |word: &[u8]| !word.is_empty() && !word.starts_with(b"-") && !word.contains(&b'=');
    let name = words.find(|word| is_name(word))?;
    launch::look_up(OsStr::from_bytes(name))
}

fn ask(reader: &mut Reader, path: &Path) -> Option<Needs> {
    let opened = open::named(path).ok()?;
    let name = path.display().to_string();
    reader.ask(Job::Needs, &(), &name, &[&opened.file]).ok()
}

/// Finds a library as the dynamic loader does, in the same order of folders.
fn find(
    name: &Path,
    inherited: &[PathBuf],
    own: &[PathBuf],
    cache: &cache::Cache,
) -> Option<PathBuf> {
    if name.components().count() > 1 {
        return Some(name.to_owned()).filter(|path| path.is_file());
    }
    let variable = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let variable: Vec<PathBuf> = std::env::split_paths(&variable).collect();
    let in_folders = |folders: &[PathBuf]| {
        let paths = folders.iter().map(|folder| folder.join(name));
        paths.into_iter().find(|path| path.is_file())
    };
    in_folders(inherited)
        .or_else(|| in_folders(&variable))
        .or_else(|| in_folders(own))
        .or_else(|| cache.find(name).filter(|path| path.is_file()))
        .or_else(|| in_folders(&library_folders()))
}

/// The folders of a list in a file, with the dynamic loader's variables replaced.
fn folders(list: &[u8], origin: &Path) -> Vec<PathBuf> {
    let library = format!("lib/{}-linux-gnu", std::env::consts::ARCH);
    let mut folders = Vec::new();
    let list = String::from_utf8_lossy(list);
    for folder in list.split(':').filter(|folder| !folder.is_empty()) {
        let mut folder = folder.to_owned();
        let words = [
            ("ORIGIN", origin.to_string_lossy().into_owned()),
            ("LIB", library.clone()),
            ("PLATFORM", std::env::consts::ARCH.to_owned()),
        ];
        for (word, meaning) in words {
            folder = folder.replace(&format!("${{{word}}}"), &meaning);
            folder = folder.replace(&format!("${word}"), &meaning);
        }
        folders.push(PathBuf::from(folder));
    }
    folders
}

/// The folders where the dynamic loader searches for libraries: those of `LD_LIBRARY_PATH`, and the system's own.
pub fn library_folders() -> Vec<PathBuf> {
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
        "/lib".into(),
        "/usr/lib".into(),
        "/usr/local/lib".into(),
    ]);
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the dynamic loader's variables in lists of folders are replaced.
    #[test]
    fn variables_of_lists_are_replaced() {
        let found = folders(b"$ORIGIN/../lib::${ORIGIN}/x:/opt/$LIB", Path::new("/a/b"));
        let library = format!("/opt/lib/{}-linux-gnu", std::env::consts::ARCH);
        let expected: [PathBuf; 3] = ["/a/b/../lib".into(), "/a/b/x".into(), library.into()];
        assert_eq!(found, expected);
    }

    /// Check that the files of a script which `env` starts are those of `env` and of the interpreter that it looks for.
    #[test]
    fn programs_that_env_starts_are_found() {
        let mut reader = crate::jobs::reader_of_tests();
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        let file = |name: &str| Path::new(name).canonicalize().unwrap();
        let mut found = |first_line: &str| -> Vec<PathBuf> {
            std::fs::write(&script, first_line).unwrap();
            let files = files_of(&mut reader, &script);
            files.iter().map(|it| it.canonicalize().unwrap()).collect()
        };
        for line in ["#!/usr/bin/env sh", "#!/usr/bin/env -S A=b sh -e\n"] {
            let files = found(line);
            assert!(files.contains(&file("/usr/bin/env")), "{files:?}");
            assert!(files.contains(&file("/bin/sh")), "{files:?}");
        }
        assert!(!found("#!/usr/bin/env -i\n").contains(&file("/bin/sh")));
        assert!(!found("#!/bin/sh env\n").contains(&file("/usr/bin/env")));
    }

    /// Check that the libraries of real programs are those that the dynamic loader itself would load.
    #[test]
    fn libraries_match_those_of_the_loader() {
        let mut reader = crate::jobs::reader_of_tests();
        for program in ["/bin/sh", "/usr/bin/env", "/usr/bin/python3"] {
            let listed = std::process::Command::new("ldd").arg(program).output();
            let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
            let mut expected: Vec<PathBuf> = listed
                .split_whitespace()
                .filter(|word| word.starts_with('/'))
                .map(|path| Path::new(path).canonicalize().unwrap())
                .collect();
            let files = files_of(&mut reader, Path::new(program));
            let mut found: Vec<PathBuf> = files[1..]
                .iter()
                .map(|path| path.canonicalize().unwrap())
                .collect();
            expected.sort();
            expected.dedup();
            found.sort();
            assert_eq!(found, expected, "{program}");
            assert!(found.len() >= 2);
        }
    }
}
