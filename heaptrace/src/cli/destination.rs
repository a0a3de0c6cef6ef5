//! Where the offline commands write: a file that appears whole or not at all, or a stream.
//!
//! Part of the command line, no stage of the flow. Knows nothing of what is written.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::profile::create_private;

/// Hands a writer to `write`, and what it wrote to `path`; `-` is standard output.
///
/// A file that was there stays as it was until the new one is whole.
pub(super) fn write_to(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if path.as_os_str() == "-" {
        let mut out = BufWriter::new(io::stdout().lock());
        write(&mut out)?;
        // Dropping it would hide that the disk behind a redirection is full.
        return out.flush().context("can't write to standard output");
    }
    let failed = || format!("can't write {}", path.display());
    // /dev/stdout and its like are links, and must never be replaced.
    let replaced = match path.symlink_metadata() {
        Ok(metadata) => metadata.is_file(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    if !replaced {
        let file = create_private(path).with_context(failed)?;
        return filled(file, write).with_context(failed);
    }
    let temporary = beside(path);
    let result = create_private(&temporary)
        .map_err(anyhow::Error::from)
        .and_then(|file| filled(file, write))
        .and_then(|()| Ok(fs::rename(&temporary, path)?));
    if result.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&temporary);
    }
    result.with_context(failed)
}

fn filled(
    file: fs::File,
    write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut out = BufWriter::new(file);
    write(&mut out)?;
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
            anyhow::bail!("out of ideas")
        })
        .unwrap_err();
        assert!(
            format!("{error:#}").contains("out.svg: out of ideas"),
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
