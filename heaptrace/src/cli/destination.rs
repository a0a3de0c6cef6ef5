//! Where the offline commands write: a file that appears whole or not at all, or a stream.
//!
//! Part of the command line, no stage of the flow. Knows nothing of what is written.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::output::OutputError;
use crate::profile::create_private;

/// Hands a writer to `write`, and what it wrote to `path`; `-` is standard output.
///
/// A file that was there stays as it was until the new one is whole.
pub(super) fn write_to(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<(), OutputError>,
) -> anyhow::Result<()> {
    if path.as_os_str() == "-" {
        return named("standard output", filled(io::stdout().lock(), write));
    }
    // /dev/stdout and its like are links, and must never be replaced.
    let replaced = match path.symlink_metadata() {
        Ok(metadata) => metadata.is_file(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    let result = if replaced {
        replace(path, write)
    } else {
        create_private(path)
            .map_err(OutputError::from)
            .and_then(|file| filled(file, write))
    };
    named(&path.display().to_string(), result)
}

/// Adds where the output went to an error that has to do with it.
fn named(name: &str, result: Result<(), OutputError>) -> anyhow::Result<()> {
    result.map_err(|error| match error {
        OutputError::Io(io) => anyhow::Error::from(io).context(format!("can't write {name}")),
        other => other.into(),
    })
}

fn replace(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<(), OutputError>,
) -> Result<(), OutputError> {
    let temporary = beside(path);
    let result = create_private(&temporary)
        .map_err(OutputError::from)
        .and_then(|file| filled(file, write))
        .and_then(|()| Ok(fs::rename(&temporary, path)?));
    if result.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&temporary);
    }
    result
}

fn filled(
    to: impl Write,
    write: impl FnOnce(&mut dyn Write) -> Result<(), OutputError>,
) -> Result<(), OutputError> {
    let mut out = BufWriter::new(to);
    write(&mut out)?;
    // Dropping it would hide that the disk is full.
    Ok(out.flush()?)
}

/// A name in the same folder that no two running heaptraces share.
fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn entries(dir: &Path) -> Vec<OsString> {
        let mut names: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        names
    }

    /// Check that a file is written whole, replaces what was there, and leaves nothing beside it.
    #[test]
    fn whole_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.svg");
        for text in ["a longer first one", "second"] {
            write_to(&path, |out| Ok(out.write_all(text.as_bytes())?)).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(entries(dir.path()), ["out.svg"]);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    /// Check that a failure leaves the older file as it was, and nothing beside it.
    #[test]
    fn failures_keep_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.svg");
        fs::write(&path, "old").unwrap();
        let error = write_to(&path, |out| {
            out.write_all(b"half")?;
            Err(OutputError::Nothing { what: "ideas" })
        })
        .unwrap_err();
        // Not "can't write": that is not what went wrong.
        assert!(
            format!("{error:#}").starts_with("nothing to draw"),
            "{error:#}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(entries(dir.path()), ["out.svg"]);
    }

    /// Check that a link (as /dev/stdout is one) is written through and not replaced.
    #[test]
    fn links_stay() {
        let dir = tempfile::tempdir().unwrap();
        let (link, target) = (dir.path().join("link"), dir.path().join("target"));
        fs::write(&target, "").unwrap();
        symlink(&target, &link).unwrap();
        write_to(&link, |out| Ok(out.write_all(b"new")?)).unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&target).unwrap(), "new");
    }

    /// Check that a full disk is an error, and a folder that does not exist is named.
    #[test]
    fn errors_are_reported() {
        let error = write_to(Path::new("/dev/full"), |out| Ok(out.write_all(b"x")?)).unwrap_err();
        assert!(
            format!("{error:#}").contains("/dev/full: No space left"),
            "{error:#}"
        );
        let error = write_to(Path::new("/no/such/folder/x"), |_| Ok(())).unwrap_err();
        assert!(
            format!("{error:#}").contains("/no/such/folder/x: No such file"),
            "{error:#}"
        );
    }
}
