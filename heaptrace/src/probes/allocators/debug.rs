//! Reads the symbols of a stripped file from its debug file.
//!
//! Stage: probes. Runs in a reader. A debug file is used only if it has the same build id. Must not know where debug files
//! are: the tracer finds and opens them.

use std::fs::File;

use object::{Object as _, ReadRef};

use super::answer::DebugFile;
use super::recognize;
use super::symbols::Symbols;

/// Longest name of a debug file.
const MAX_NAME: usize = 255;

/// Adds the symbols of the first candidate that has the same build id as the file.
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
            symbols.add_debug_file(&debug, recognize::is_wanted);
            return;
        }
    }
}

/// The names of a file's debug file, if the file has a build id.
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
