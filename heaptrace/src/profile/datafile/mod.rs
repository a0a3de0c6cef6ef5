//! The data file: what `record` writes as a run goes, and every offline command reads.
//!
//! Stage: profile. A magic and a version, then chunks, each with its lengths and a checksum, each a
//! zstd-compressed message. Updates hold absolute records, so a file cut anywhere is a true picture
//! of an earlier moment. Knows nothing of where updates come from.

mod chunk;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::io;
use std::path::PathBuf;

use thiserror::Error;

pub use read::{DataFile, ReadOptions, Recording, is_data_file, open, read, read_from};
pub use write::DataFileWriter;

/// First bytes of every data file. The first is no text, and the last two are what a transfer in
/// text mode would spoil.
const MAGIC: [u8; 8] = *b"\x89HTRACE\n";

/// The version of the format that this file writes, and the newest that it reads.
const VERSION: u32 = 1;

/// A data file of these messages of updates and of symbols, whatever they are.
#[cfg(test)]
pub(crate) fn crafted(updates: &[Vec<u8>], symbols: &[Vec<u8>]) -> Vec<u8> {
    use prost::Message as _;
    let start = crate::profile::wire::Start::from(&crate::profile::RunInfo::exact("--all"));
    let mut file = MAGIC.to_vec();
    file.extend(VERSION.to_le_bytes());
    file.extend(chunk::encode(chunk::Kind::Start, &start.encode_to_vec()).unwrap());
    for (kind, messages) in [
        (chunk::Kind::Update, updates),
        (chunk::Kind::Symbols, symbols),
    ] {
        // The same ones are compressed once.
        for same in messages.chunk_by(|a, b| a == b) {
            let chunk = chunk::encode(kind, &same[0]).unwrap();
            file.extend(chunk.repeat(same.len()));
        }
    }
    file
}

/// Why a data file can't be written or read.
#[derive(Debug, Error)]
pub enum DataFileError {
    /// The file can't be made.
    #[error("can't create {path}: {source}; name another file with -o", path = path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A write failed; the writer is dead.
    #[error(
        "can't write to {path}: {source}; recording stopped there, what was written until then stays readable",
        path = path.display()
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
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
        /// What the system said.
        source: io::Error,
    },
    /// The file has no bytes.
    #[error("{name} is empty: its recording never began; make a new one with `heaptrace record`")]
    Empty {
        /// The file.
        name: String,
    },
    /// The file is something else.
    #[error("{name} is not a heaptrace data file: name one that `heaptrace record` wrote")]
    NotADataFile {
        /// The file.
        name: String,
    },
    /// The file was written by a later heaptrace.
    #[error(
        "{name} has format version {version}, and this heaptrace reads up to {VERSION}: read it with a newer heaptrace"
    )]
    Newer {
        /// The file.
        name: String,
        /// Its version.
        version: u32,
    },
    /// What outputs would make of the file is too large.
    #[error("can't read {name}: {why}")]
    TooLarge {
        /// The file.
        name: String,
        /// What it takes.
        why: String,
    },
    /// The file ends, or is damaged, before anything was recorded.
    #[error("{name} holds no recording ({why}): make a new one with `heaptrace record`")]
    NoStart {
        /// The file.
        name: String,
        /// What is wrong.
        why: String,
    },
}
