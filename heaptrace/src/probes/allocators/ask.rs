//! Asks a reader to inspect a file, and turns its answer into a finding.
//!
//! Stage: probes. Opens the debug files that the reader asks for, below the root folder of the process that has mapped the
//! file. The reader checks that they are of the same build. Must not parse files.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::answer::{Answer, DebugFile, Question};
use super::model::{Allocator, Finding, Unprobed};
use crate::kernel::version;
use crate::open::{Opened, Root};
use crate::proc::build_id;
use crate::reader::{Job, Reader, Unreadable};

/// The folder where distributions put debug files.
const FOLDER: &str = "usr/lib/debug";

/// What is searched for, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search<'p> {
    /// The root folder below which debug files are searched. `None`: debug files are not searched.
    pub(super) root: Option<&'p Root>,
    /// The prefix of the functions, if the user names the file as an allocator.
    pub(super) named: Option<&'p str>,
    /// Whether functions that map memory are wanted as well.
    pub(super) mappings: bool,
}

/// Asks a reader about a file.
pub(super) fn finding(
    reader: &mut Reader,
    opened: Opened,
    path: String,
    search: Search<'_>,
) -> Finding {
    let question = Question {
        path: path.clone(),
        named: search.named.map(str::to_owned),
        mappings: search.mappings,
        kernel: version::running(),
    };
    let mut ask = |debug: &[&File]| {
        let files: Vec<&File> = std::iter::once(&opened.file)
            .chain(debug.iter().copied())
            .collect();
        reader.ask::<Answer>(Job::Inspect, &question, &path, &files)
    };
    let mut answer = ask(&[]);
    if let Ok(Answer::Stripped { wanted, otherwise }) = answer {
        let found = search
            .root
            .map(|root| open_debug_files(root, &wanted, &path));
        let found = found.unwrap_or_default();
        answer = if found.is_empty() {
            Ok(*otherwise)
        } else {
            ask(&found.iter().collect::<Vec<_>>())
        };
    }
    let unprobed = |reason: String| {
        Finding::Unprobed(Unprobed {
            path: path.clone(),
            reason,
        })
    };
    match answer {
        Ok(Answer::Probed(probed)) => {
            let length = opened.file.metadata().map_or(0, |meta| meta.len());
            match probed.checked(length) {
                Some(checked) => Finding::Allocator(Allocator {
                    path,
                    file: opened.file,
                    id: opened.identity.file,
                    functions: checked.functions,
                    returns: checked.returns,
                    own_code: checked.own_code,
                    notes: checked.notes,
                }),
                None => unprobed(Unreadable::Nonsense.to_string()),
            }
        }
        Ok(Answer::Unprobed(reason)) => unprobed(reason),
        Ok(Answer::Nothing) => Finding::Nothing,
        Ok(Answer::Stripped { .. }) => unprobed(Unreadable::Nonsense.to_string()),
        Err(reason) => unprobed(reason.to_string()),
    }
}

fn open_debug_files(root: &Root, wanted: &DebugFile, path: &str) -> Vec<File> {
    candidates(wanted, Path::new(path))
        .into_iter()
        .filter_map(|candidate| Some(root.open(&candidate).ok()?.file))
        .collect()
}

fn candidates(wanted: &DebugFile, path: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    if wanted.build_id.len() <= build_id::MAX_BYTES
        && let Some(path) = build_id::debug_file(&wanted.build_id)
    {
        paths.push(Path::new(FOLDER).join(path));
    }
    if let Some(name) = &wanted.link
        && !name.contains('/')
        && let Some(folder) = path.parent().and_then(|it| it.strip_prefix("/").ok())
    {
        paths.push(Path::new(FOLDER).join(folder).join(name));
        paths.push(folder.join(name));
        paths.push(folder.join(".debug").join(name));
    }
    paths
}
