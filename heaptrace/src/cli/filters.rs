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

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn filters(expressions: &[&str], files: &[PathBuf]) -> anyhow::Result<Vec<String>> {
        let filters = Filters {
            expressions: expressions.iter().map(|it| it.parse().unwrap()).collect(),
            files: files.to_vec(),
        };
        let made = read(&filters)?;
        Ok(made.iter().map(ToString::to_string).collect())
    }

    /// Check that expressions find the names of all files, and that a file that can't be read or understood is named.
    #[test]
    fn names_are_found_in_files() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let web = file("web", "web = process=nginx and not tls");
        let tls = file("tls", "tls = module=libssl*\n");
        let both = [web.clone(), tls];
        assert_eq!(filters(&["web", "pid=1"], &both).unwrap(), ["web", "pid=1"]);
        assert_eq!(filters(&["pid=1"], &[]).unwrap(), ["pid=1"]);
        let error = |files: &[PathBuf]| format!("{:#}", filters(&["web"], files).unwrap_err());
        let alone = error(&[web]);
        assert!(
            alone.contains("web, line 1: there is no filter `tls`"),
            "{alone}"
        );
        let missing = error(&[folder.path().join("none")]);
        assert!(missing.contains("can't read the filters of"), "{missing}");
        let long = error(&[file("long", &"#".repeat(LONGEST as usize + 1))]);
        assert!(long.contains("more than 1.0 MiB"), "{long}");
        assert!(error(&[file("raw", "\u{1b} = x")]).contains("line 1: write it as NAME"));
    }
}
