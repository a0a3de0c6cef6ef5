//! Symbols that a file was stripped of: its debug file, and the table packed into it.
//!
//! Stage: probes. Debug files are looked for below the root folder of the process that has the file,
//! and nothing outside of it is opened. One counts only if it is of the same build.

use std::fs::File;
use std::path::{Path, PathBuf};

use object::{Object as _, ReadRef};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

use super::known;
use super::symbols::Symbols;

/// Where distributions put them.
const FOLDER: &str = "usr/lib/debug";

/// Adds the symbols that a file was stripped of.
pub(super) fn add<'a, R: ReadRef<'a>>(
    symbols: &mut Symbols,
    image: &object::File<'a, R>,
    root: &Path,
    path: &Path,
) {
    symbols.add_packed(image, known::is_wanted);
    let Ok(Some(build_id)) = image.build_id() else {
        return;
    };
    for candidate in candidates(build_id, image, path) {
        let Some(file) = open_below(root, &candidate) else {
            continue;
        };
        let cache = object::ReadCache::new(&file);
        let Ok(debug) = object::File::parse(&cache) else {
            continue;
        };
        if debug.build_id().ok().flatten() == Some(build_id) {
            symbols.add_debug_file(&debug, known::is_wanted);
            return;
        }
    }
}

fn candidates<'a, R: ReadRef<'a>>(
    build_id: &[u8],
    image: &object::File<'a, R>,
    path: &Path,
) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    if let Some((first, rest)) = build_id.split_first() {
        let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
        paths.push(format!("{FOLDER}/.build-id/{first:02x}/{rest}.debug").into());
    }
    if let Ok(Some((name, _))) = image.gnu_debuglink()
        && let Ok(name) = std::str::from_utf8(name)
        && !name.contains('/')
        && let Some(folder) = path.parent().and_then(|it| it.strip_prefix("/").ok())
    {
        paths.push(Path::new(FOLDER).join(folder).join(name));
        paths.push(folder.join(name));
        paths.push(folder.join(".debug").join(name));
    }
    paths
}

/// Opens an ordinary file below a root folder, following links only within it.
fn open_below(root: &Path, path: &Path) -> Option<File> {
    let root = openat(CWD, root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    // What is no ordinary file must not make us wait.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT).ok()?;
    let file = File::from(file);
    file.metadata().ok()?.is_file().then_some(file)
}
