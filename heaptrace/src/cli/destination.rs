//! Where the offline commands write: a file that appears whole or not at all, or a stream.
//!
//! Part of the command line, no stage of the flow. Knows nothing of what is written.

use std::io::{self, BufWriter, Write};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use crate::create::{Destination, Pending};
use crate::output::OutputError;

/// Where an output goes, opened before anything is read.
pub(super) struct Output {
    path: PathBuf,
    /// `None` for standard output.
    to: Option<Pending>,
}

impl Output {
    /// Opens what a path leads to; `-` is standard output. A file has its name only once it is whole.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let to = if path.as_os_str() == "-" {
            None
        } else {
            let begun = Destination::open(path).and_then(|to| to.begin());
            Some(begun.map_err(|error| refused(path, error))?)
        };
        Ok(Self {
            path: path.to_owned(),
            to,
        })
    }

    /// The folder in which a file gets its name; `None` for a stream.
    pub(super) fn folder(&self) -> Option<BorrowedFd<'_>> {
        self.to.as_ref().and_then(Pending::folder)
    }

    /// Hands a writer to `write`, and what it wrote to its destination.
    ///
    /// A file that was there stays as it was until the new one is whole.
    pub(super) fn write(
        self,
        write: impl FnOnce(&mut dyn Write) -> Result<(), OutputError>,
    ) -> anyhow::Result<()> {
        let Some(pending) = self.to else {
            let written = filled(io::stdout().lock(), write);
            return written.map_err(|error| named(error, "standard output"));
        };
        let name = self.path.display().to_string();
        filled(pending.file()?, write).map_err(|error| named(error, &name))?;
        pending
            .commit()
            .map_err(|error| refused(&self.path, error))?;
        Ok(())
    }
}

/// Adds where the output went to an error that has to do with it.
fn named(error: OutputError, name: &str) -> anyhow::Error {
    match error {
        OutputError::Io(io) => anyhow::Error::from(io).context(format!("can't write {name}")),
        other => other.into(),
    }
}

/// An error of the place, and what to do about it.
fn refused(path: &Path, error: io::Error) -> anyhow::Error {
    anyhow::anyhow!(
        "can't write {}: {error}; name another file with -o, or - for standard output",
        path.display()
    )
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

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs;

    use super::*;

    fn write_to(
        path: &Path,
        write: impl FnOnce(&mut dyn Write) -> Result<(), OutputError>,
    ) -> anyhow::Result<()> {
        Output::open(path)?.write(write)
    }

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
