//! Writes a data file, chunk by chunk, as the run goes.
//!
//! Stage: profile. Each call hands whole chunks to the system, so that a killed writer leaves a
//! file that reads up to the last of them.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use prost::Message;

use super::chunk::{self, Kind};
use super::{DataFileError, MAGIC, VERSION};
use crate::create::Destination;
use crate::join::Update;
use crate::profile::wire::{End, Start, SymbolsMessage, UpdateMessage};
use crate::profile::{RunInfo, Symbols};

/// Bytes at which an update is split: far below what a reader takes, so that the last record that
/// went into a part can't push it over.
const PART: usize = 4 << 20;

/// A data file that is being written.
#[derive(Debug)]
pub struct DataFileWriter {
    file: File,
    path: PathBuf,
    /// End of the last whole chunk.
    written: u64,
    failed: bool,
}

impl DataFileWriter {
    /// Creates the file, readable by its owner only, and writes how the run is made.
    pub fn create(path: &Path, info: &RunInfo) -> Result<Self, DataFileError> {
        Self::create_at(&Self::destination(path)?, path, info)
    }

    /// Finds where the file goes, and whether it can, before there is anything to write.
    pub fn destination(path: &Path) -> Result<Destination, DataFileError> {
        Destination::open(path).map_err(|source| DataFileError::Create {
            path: path.to_owned(),
            source,
        })
    }

    /// As `create`, in a folder that is held open; errors call the file `path`.
    pub fn create_at(
        destination: &Destination,
        path: &Path,
        info: &RunInfo,
    ) -> Result<Self, DataFileError> {
        // It has its name from the beginning, so that there is something to read when the writer is killed.
        let file = destination
            .create()
            .map_err(|source| DataFileError::Create {
                path: path.to_owned(),
                source,
            })?;
        Self::to(file, path.to_owned(), info)
    }

    /// Writes to what is open; errors call it `path`.
    pub fn to(file: File, path: PathBuf, info: &RunInfo) -> Result<Self, DataFileError> {
        let mut writer = Self {
            file,
            path,
            written: 0,
            failed: false,
        };
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        writer.chunks(bytes, Kind::Start, &[Start::from(info)])?;
        Ok(writer)
    }

    /// Writes what changed.
    pub fn update(&mut self, update: &Update) -> Result<(), DataFileError> {
        self.chunks(
            Vec::new(),
            Kind::Update,
            &UpdateMessage::parts(update, PART),
        )
    }

    /// Writes the names of locations; they replace those written before.
    pub fn symbols(&mut self, symbols: &Symbols) -> Result<(), DataFileError> {
        self.chunks(
            Vec::new(),
            Kind::Symbols,
            &SymbolsMessage::parts(symbols, PART),
        )
    }

    /// Writes that everything was written.
    pub fn finish(mut self, duration_ns: u64) -> Result<(), DataFileError> {
        self.chunks(Vec::new(), Kind::End, &[End { duration_ns }])
    }

    /// Bytes that were written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The file was renamed; errors name it by its new name.
    pub fn moved_to(&mut self, path: PathBuf) {
        self.path = path;
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn chunks<M: Message>(
        &mut self,
        head: Vec<u8>,
        kind: Kind,
        messages: &[M],
    ) -> Result<(), DataFileError> {
        if self.failed {
            return Err(DataFileError::Stopped {
                path: self.path.clone(),
            });
        }
        self.try_chunks(head, kind, messages).map_err(|source| {
            self.failed = true;
            // Takes off what was written of the chunk that failed, so that the file ends whole. A
            // pipe or a device can't, and a reader copes with a cut one.
            let _ = self.file.set_len(self.written);
            DataFileError::Write {
                path: self.path.clone(),
                source,
            }
        })
    }

    fn try_chunks<M: Message>(
        &mut self,
        mut bytes: Vec<u8>,
        kind: Kind,
        messages: &[M],
    ) -> io::Result<()> {
        for message in messages {
            bytes.extend(chunk::encode(kind, &message.encode_to_vec())?);
            self.file.write_all(&bytes)?;
            self.written += bytes.len() as u64;
            bytes.clear();
        }
        Ok(())
    }
}
