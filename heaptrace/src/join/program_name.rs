//! The name by which a program was started. A link can have another name than the file it leads to, and users know the
//! link's.
//!
//! Stage: join. The kernel reports only the path of the file. What the process says about itself is believed only if
//! it names a path of that file: a script has a name of its own, and a process can write any title.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::command_line;
use crate::events::sideband::Mapped;
use crate::open;
use crate::text::file_name;

/// The longest name that the kernel keeps of a process.
const MAX_PROCESS_NAME: usize = 15;

/// Where commands are that are started without a folder. Only root can write there.
const SYSTEM_FOLDERS: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

/// The path of a process's program, in the words of its mappings.
pub(super) fn path_of(pid: u32) -> Option<String> {
    let path = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    Some(path.to_string_lossy().into_owned())
}

/// The name by which a process started the program in a file; `None` if that is not known. `process_name` is the one
/// that the kernel gave the process, `launched` the path by which heaptrace started it.
pub(super) fn of(
    pid: u32,
    process_name: &str,
    launched: Option<&Path>,
    mapped: &Mapped,
) -> Option<String> {
    let own_name = file_name(&mapped.path);
    let is_cut = process_name.len() == MAX_PROCESS_NAME && own_name.starts_with(process_name);
    if process_name == own_name || is_cut {
        return Some(own_name.to_owned());
    }
    // The process may be gone already.
    let word = match launched {
        Some(path) if open::leads_to(pid, path, mapped.file) => {
            path.as_os_str().as_bytes().to_vec()
        }
        _ => command_line::first_word(pid),
    };
    let leads_to_file = |path: &Path| {
        // A daemon's path may have left the kernel's cache since its start.
        let is_systems = SYSTEM_FOLDERS
            .iter()
            .any(|folder| path.parent() == Some(Path::new(folder)));
        open::leads_to(pid, path, mapped.file)
            || is_systems && open::system_path_leads_to(path, mapped.file)
    };
    find(&word, process_name, &mapped.path, leads_to_file)
}

/// The first name whose path leads to the file.
fn find(
    first_word: &[u8],
    process_name: &str,
    file: &str,
    leads_to_file: impl Fn(&Path) -> bool,
) -> Option<String> {
    let word = Path::new(OsStr::from_bytes(first_word));
    let name_of = |path: &Path| Some(path.file_name()?.to_string_lossy().into_owned());
    if first_word.contains(&b'/') && leads_to_file(word) {
        return name_of(word);
    }
    let names: BTreeSet<&OsStr> = word
        .file_name()
        .into_iter()
        // The word is complete, and the process's name may be cut.
        .filter(|name| name.as_bytes().starts_with(process_name.as_bytes()))
        .chain([OsStr::new(process_name)])
        .collect();
    let beside_file = Path::new(file).parent().into_iter();
    let folders: Vec<&Path> = beside_file
        .chain(SYSTEM_FOLDERS.iter().map(Path::new))
        .collect();
    let mut paths = names
        .into_iter()
        .filter(|name| !name.is_empty())
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    let found: PathBuf = paths.find(|path| leads_to_file(path))?;
    name_of(&found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name of a process, if these paths lead to its file `/opt/x/prog-1.2`.
    fn found(word: &str, process_name: &str, paths: &[&str]) -> Option<String> {
        let leads = |path: &Path| paths.iter().any(|it| Path::new(it) == path);
        find(word.as_bytes(), process_name, "/opt/x/prog-1.2", leads)
    }

    /// Check that a path, a command of a system folder, and a link beside the file give the name, and that a cut name
    /// is completed.
    #[test]
    fn names_lead_to_the_file() {
        let name = |text: &str| Some(text.to_owned());
        assert_eq!(found("/a/link", "link", &["/a/link"]), name("link"));
        assert_eq!(found("bin/link", "link", &["bin/link"]), name("link"));
        assert_eq!(found("link", "link", &["/usr/bin/link"]), name("link"));
        assert_eq!(found("", "link", &["/opt/x/link"]), name("link"));
        let long = "a-name-of-many-bytes";
        let beside = format!("/opt/x/{long}");
        assert_eq!(found(long, &long[..15], &[&beside]), name(long));
    }

    /// Check that a title, a script and a login shell don't give the program a name that it does not have.
    #[test]
    fn other_words_are_no_names() {
        assert_eq!(
            found("link *:7790", "script.py", &["/opt/x/prog-1.2"]),
            None
        );
        assert_eq!(found("/a/b", "b", &["/usr/bin/c"]), None);
        assert_eq!(found("-sh", "sh", &["/bin/sh"]), Some("sh".to_owned()));
        assert_eq!(found("..", "", &["..", "/", "/opt/x"]), None);
        assert_eq!(found("/", "", &["/"]), None);
    }

    /// Check that a program that runs under its own name has it, and that a process that is gone has none.
    #[test]
    fn own_names_are_names() {
        let mapped = |path: &str| Mapped {
            start: 0,
            end: 0,
            offset: 0,
            path: path.to_owned(),
            file: open::Expected::default(),
            is_shared: false,
        };
        let name = |text: &str| Some(text.to_owned());
        assert_eq!(of(u32::MAX, "a", None, &mapped("/x/a")), name("a"));
        let long = "a-name-of-many-bytes";
        let path = format!("/x/{long}");
        assert_eq!(of(u32::MAX, &long[..15], None, &mapped(&path)), name(long));
        assert_eq!(of(u32::MAX, "b", None, &mapped("/x/a")), None);
        let own = path_of(std::process::id());
        assert!(own.is_some_and(|path| Path::new(&path).exists()));
    }
}
