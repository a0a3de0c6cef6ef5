//! Why a data file can't be written or read.
//!
//! Stage: profile.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::format::VERSION;

/// Why a data file can't be written or read.
#[derive(Debug, Error)]
pub enum DataFileError {
    /// The file can't be created.
    #[error("can't create {path}: {source}; name another file with -o", path = path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A write failed. The writer writes nothing more.
    #[error(
        "can't write to {path}: {source}; the recording stopped there, and the part before it can be read",
        path = path.display()
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// An earlier write failed.
    #[error("nothing more is written to {path}: an earlier write failed", path = path.display())]
    Stopped {
        /// The file.
        path: PathBuf,
    },
    /// There is no such file.
    #[error("{name} does not exist: make it with `heaptrace record`, or name another file")]
    Missing {
        /// The file.
        name: String,
    },
    /// The file can't be opened or read.
    #[error("can't read {name}: {source}")]
    Read {
        /// The file.
        name: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is read for the second time, and can't be: it is a pipe.
    #[error(
        "{name} has to be read twice for this, but it is a pipe: store it in a file first, or name times after the beginning, as --from 30s"
    )]
    Pipe {
        /// The file.
        name: String,
    },
    /// The file has no bytes.
    #[error("{name} is empty: its recording never began; make a new one with `heaptrace record`")]
    Empty {
        /// The file.
        name: String,
    },
    /// The file is no data file.
    #[error("{name} is not a heaptrace data file: name one that `heaptrace record` wrote")]
    NotADataFile {
        /// The file.
        name: String,
    },
    /// A later version of heaptrace wrote the file.
    #[error(
        "{name} has format version {version}, but this heaptrace reads only up to {VERSION}: read it with a newer heaptrace"
    )]
    Newer {
        /// The file.
        name: String,
        /// Its version.
        version: u32,
    },
    /// The outputs would need too much memory for the file.
    #[error("can't read {name}: {why}")]
    TooLarge {
        /// The file.
        name: String,
        /// The limit that it exceeds.
        why: String,
    },
    /// The wanted range of the run is between no two updates.
    #[error(
        "{name} can't tell what happened between these times: {why}; `heaptrace report --snapshots` lists the times that it knows"
    )]
    NothingBetween {
        /// The file.
        name: String,
        /// Why there are none.
        why: String,
    },
    /// The file ends, or is damaged, before the first record.
    #[error("{name} holds no recording ({why}): make a new one with `heaptrace record`")]
    NoStart {
        /// The file.
        name: String,
        /// The damage.
        why: String,
    },
}

impl DataFileError {
    /// Why a file can't be read for the second time.
    pub(super) fn again(name: &str, source: io::Error) -> Self {
        let name = name.to_owned();
        match source.kind() {
            io::ErrorKind::NotSeekable => Self::Pipe { name },
            _ => Self::Read { name, source },
        }
    }
}
