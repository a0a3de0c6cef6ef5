//! The output of the offline commands: a file, which appears complete or not at all, or standard output.
//!
//! Part of the command line. Must not know what is written.

use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use super::message;
use crate::create::{Destination, Pending};
use crate::output::OutputError;

/// Where an output goes, as the user asked for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct To<'a> {
    /// The file; `-` is standard output.
    pub(super) path: &'a Path,
    /// Whether it replaces a file that heaptrace has not made.
    force: bool,
}

impl<'a> To<'a> {
    pub(super) fn new(path: &'a Path, force: bool) -> Self {
        Self { path, force }
    }
}

/// An output, opened before anything is read.
pub(super) struct Output {
    path: PathBuf,
    /// `None` for standard output.
    to: Option<Pending>,
    /// Whether a person reads the messages. A process that has given up its rights may not ask.
    has_reader: bool,
}

impl Output {
    /// Opens the output. A file gets its name only when it is complete.
    pub(super) fn open(to: &To<'_>) -> anyhow::Result<Self> {
        let path = to.path;
        let pending = if path.as_os_str() == "-" {
            None
        } else {
            let opened = Destination::open(path).map_err(|error| refused(path, error))?;
            let is_own = to.force || opened.is_own().map_err(|error| refused(path, error))?;
            if !is_own {
                anyhow::bail!(
                    "{} exists, and heaptrace has not made it; --force replaces it, -o writes another file",
                    path.display()
                );
            }
            let pending = opened.begin().map_err(|error| refused(path, error))?;
            Some(pending.delete_at_signals())
        };
        Ok(Self {
            path: path.to_owned(),
            to: pending,
            has_reader: io::stderr().is_terminal(),
        })
    }

    /// Whether it goes to standard output.
    pub(super) fn is_stream(&self) -> bool {
        self.to.is_none()
    }

    /// Writes the output as [`Self::write`] does, and says on a terminal where it is and what to do with it.
    pub(super) fn write_and_say(
        self,
        next: &str,
        write: impl FnOnce(&mut dyn Write) -> Result<(), OutputError>,
    ) -> anyhow::Result<()> {
        let path = self.path.clone();
        let is_said = self.has_reader && !self.is_stream();
        self.write(write)?;
        if is_said {
            message::wrote(&path, next);
        }
        Ok(())
    }

    /// The folder in which the file gets its name; `None` for a stream.
    pub(super) fn folder(&self) -> Option<BorrowedFd<'_>> {
        self.to.as_ref().and_then(Pending::folder)
    }

    /// Lets `write` write the output.
    ///
    /// An existing file stays unchanged until the new file is complete.
    pub(super) fn write(
        self,
        write: impl FnOnce(&mut dyn Write) -> Result<(), OutputError>,
    ) -> anyhow::Result<()> {
        let Some(pending) = self.to else {
            let written = write_buffered(io::stdout().lock(), write);
            return written.map_err(|error| named(error, "standard output"));
        };
        let name = self.path.display().to_string();
        write_buffered(pending.file()?, write).map_err(|error| named(error, &name))?;
        pending
            .commit()
            .map_err(|error| refused(&self.path, error))?;
        Ok(())
    }
}

/// Adds the name of the output to an error of writing it.
fn named(error: OutputError, name: &str) -> anyhow::Error {
    match error {
        OutputError::Io(io) => anyhow::Error::from(io).context(format!("can't write {name}")),
        other => other.into(),
    }
}

/// An error of the destination, with what the user can do.
fn refused(path: &Path, error: io::Error) -> anyhow::Error {
    anyhow::anyhow!(
        "can't write {}: {error}; choose another file with -o, or - for standard output",
        path.display()
    )
}

fn write_buffered(
    to: impl Write,
    write: impl FnOnce(&mut dyn Write) -> Result<(), OutputError>,
) -> Result<(), OutputError> {
    let mut out = BufWriter::new(to);
    write(&mut out)?;
    // An implicit flush at drop would hide that the disk is full.
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
        Output::open(&To::new(path, false))?.write(write)
    }

    fn entries(dir: &Path) -> Vec<OsString> {
        let mut names: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        names
    }

    /// Check that a file is written completely, replaces an existing file, and leaves no temporary file.
    #[test]
    fn files_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.svg");
        for text in ["a longer first one", "second"] {
            write_to(&path, |out| Ok(out.write_all(text.as_bytes())?)).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(entries(dir.path()), ["out.svg"]);
    }

    /// Check that a file of another program is replaced only if the user says so, and that data files, empty files and files with names
    /// that heaptrace gives are replaced.
    #[test]
    fn files_of_others_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, content: &[u8], force| {
            let path = dir.path().join(name);
            fs::write(&path, content).unwrap();
            let output = Output::open(&To::new(&path, force))?;
            output.write(|out| Ok(out.write_all(b"new")?))?;
            anyhow::Ok(fs::read(&path).unwrap() == b"new")
        };
        let error = write("notes.txt", b"mine", false).unwrap_err();
        assert!(format!("{error:#}").contains("--force"), "{error:#}");
        assert_eq!(fs::read(dir.path().join("notes.txt")).unwrap(), b"mine");
        for (name, content, force) in [
            ("notes.txt", &b"mine"[..], true),
            ("empty", b"", false),
            ("old.data", b"\x89HTRACE\n...", false),
            ("heaptrace.svg", b"<svg", false),
        ] {
            assert!(write(name, content, force).unwrap(), "{name}");
        }
    }

    /// Check that a failure leaves the existing file unchanged, and leaves no temporary file.
    #[test]
    fn failures_keep_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("heaptrace.svg");
        fs::write(&path, "old").unwrap();
        let error = write_to(&path, |out| {
            out.write_all(b"half")?;
            Err(OutputError::Nothing)
        })
        .unwrap_err();
        // Not "can't write", which is not the cause.
        assert!(
            format!("{error:#}").starts_with("nothing to draw"),
            "{error:#}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(entries(dir.path()), ["heaptrace.svg"]);
    }

    /// Check that a full disk is an error, and that a missing folder is named.
    #[test]
    fn errors_name_the_file() {
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
