//! Makes filters of the expressions on the command line, with the files that have named ones.
//!
//! Part of the command line. Must not know the language: the output stage does.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::thread;

use anyhow::{Context as _, anyhow, ensure};

use super::invocation::Filters;
use crate::open;
use crate::output::{Definitions, Filter};
use crate::sandbox::{Kept, rights};
use crate::text;

/// Longest file of filters.
const LONGEST: u64 = 1 << 20;

/// The filters. Reads their files, so it comes before the process gives up its rights.
pub(super) fn read(filters: &Filters) -> anyhow::Result<Vec<Filter>> {
    let mut definitions = Definitions::default();
    for path in &filters.files {
        add(&mut definitions, path)?;
    }
    definitions.check().map_err(|why| anyhow!(why))?;
    let expressions = filters.expressions.iter();
    let made = expressions.map(|it| {
        definitions
            .filter(it)
            .map_err(|why| anyhow!("--filter: {why}"))
    });
    made.collect()
}

fn add(definitions: &mut Definitions, path: &Path) -> anyhow::Result<()> {
    let name = path.to_string_lossy();
    let failed = || format!("can't read the filters of {}", text::escape(&name));
    let mut content = String::new();
    let file = opened(path).with_context(failed)?;
    file.take(LONGEST + 1)
        .read_to_string(&mut content)
        .with_context(failed)?;
    ensure!(
        content.len() as u64 <= LONGEST,
        "{} is no file of filters: it has more than {}",
        text::escape(&name),
        text::bytes(LONGEST)
    );
    definitions.add(&name, &content).map_err(|why| anyhow!(why))
}

/// Opens a file by the user's own rights. An error shows a line of the file, and a binary with file capabilities could open files that
/// the user may not read.
fn opened(path: &Path) -> anyhow::Result<File> {
    if rustix::process::geteuid().is_root() {
        return Ok(open::named(path)?.file);
    }
    // Capabilities are those of a thread.
    let opened = thread::scope(|scope| {
        let opening = scope.spawn(|| {
            rights::keep(Kept::empty())?;
            Ok(open::named(path)?.file)
        });
        opening.join()
    });
    opened.unwrap_or_else(|_| Err(io::Error::other("the thread that opens it ended early").into()))
}
