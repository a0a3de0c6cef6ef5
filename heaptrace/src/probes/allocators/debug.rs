//! Symbols that a file was stripped of: those of its debug file.
//!
//! Stage: probes. Runs in a reader. A debug file counts only if it is of the same build; where one is, the tracer knows.

use std::fs::File;

use object::{Object as _, ReadRef};

use super::answer::DebugFile;
use super::known;
use super::symbols::Symbols;

/// Longest name of a debug file.
const MAX_NAME: usize = 255;

/// Adds the symbols of the first of several files that is of the same build as another one.
pub(super) fn add<'a, R: ReadRef<'a>>(
    symbols: &mut Symbols,
    image: &object::File<'a, R>,
    candidates: &[File],
) {
    let Ok(Some(build_id)) = image.build_id() else {
        return;
    };
    for file in candidates {
        let cache = object::ReadCache::new(file);
        let Ok(debug) = object::File::parse(&cache) else {
            continue;
        };
        if debug.build_id().ok().flatten() == Some(build_id) {
            symbols.add_debug_file(&debug, known::is_wanted);
            return;
        }
    }
}

/// The debug file that a file has elsewhere, if it has one.
pub(super) fn wanted<'a, R: ReadRef<'a>>(image: &object::File<'a, R>) -> Option<DebugFile> {
    let build_id = image.build_id().ok().flatten()?;
    let link = image.gnu_debuglink().ok().flatten();
    let link = link.and_then(|(name, _)| std::str::from_utf8(name).ok());
    Some(DebugFile {
        build_id: build_id.to_vec(),
        link: link
            .filter(|name| name.len() <= MAX_NAME && !name.contains('/'))
            .map(str::to_owned),
    })
}
