//! Writes a data file, chunk by chunk, during the run.
//!
//! Stage: profile. Each call gives whole chunks to the system, so the file of a killed writer can be read up
//! to its last chunk.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use prost::Message;

use super::chunk::{self, Kind, Window};
use super::error::DataFileError;
use super::format::{MAGIC, VERSION};
use crate::create::Destination;
use crate::join::Update;
use crate::profile::model::RunInfo;
use crate::profile::symbols::Symbols;
use crate::profile::wire::{
    BlocksMessage, End, Start, SymbolsMessage, UpdateMessage, WrittenSites,
};

/// Most bytes of a part of an update, before its last record. It is far below the limit of a reader, so that
/// the last record can't exceed that.
const PART: usize = 4 << 20;

/// The chunks with the names of locations.
pub(super) fn encode_names(symbols: &Symbols) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for message in SymbolsMessage::parts(symbols, PART) {
        bytes.extend(chunk::encode(Kind::Symbols, &message.encode_to_vec())?);
    }
    Ok(bytes)
}

/// A data file that is being written.
#[derive(Debug)]
pub struct DataFileWriter {
    file: File,
    path: PathBuf,
    /// End of the last whole chunk.
    written: u64,
    failed: bool,
    window: Window,
    sites: WrittenSites,
}

impl DataFileWriter {
    /// Creates the file, which only its owner can read, and writes how the run is made.
    pub fn create(path: &Path, info: &RunInfo) -> Result<Self, DataFileError> {
        Self::create_at(&Self::destination(path)?, path, info)
    }

    /// Checks that the file can be created, before there is anything to write.
    pub fn destination(path: &Path) -> Result<Destination, DataFileError> {
        Destination::open(path).map_err(|source| DataFileError::Create {
            path: path.to_owned(),
            source,
        })
    }

    /// Creates the file in an open folder; errors call the file `path`.
    pub fn create_at(
        destination: &Destination,
        path: &Path,
        info: &RunInfo,
    ) -> Result<Self, DataFileError> {
        // The file has its name from the beginning, so that it can be read after the writer was killed.
        let file = destination
            .create()
            .map_err(|source| DataFileError::Create {
                path: path.to_owned(),
                source,
            })?;
        Self::to(file, path.to_owned(), info)
    }

    /// Writes to an open file; errors call it `path`.
    pub fn to(file: File, path: PathBuf, info: &RunInfo) -> Result<Self, DataFileError> {
        let mut writer = Self {
            file,
            path,
            written: 0,
            failed: false,
            window: Window::default(),
            sites: WrittenSites::default(),
        };
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        writer.chunks(bytes, Kind::Start, &[Start::from(info)])?;
        Ok(writer)
    }

    /// Writes an update, and its blocks one by one, if it has some.
    pub fn update(&mut self, update: &Update) -> Result<(), DataFileError> {
        let parts = UpdateMessage::parts(update, &mut self.sites, PART);
        self.chunks(Vec::new(), Kind::Update, &parts)?;
        // One at a time: a new file begins with all live blocks.
        for part in update.blocks.iter().flat_map(BlocksMessage::parts) {
            self.chunks(Vec::new(), Kind::Blocks, &[part])?;
        }
        Ok(())
    }

    /// Writes the names of locations. They replace the names that were written before.
    pub fn symbols(&mut self, symbols: &Symbols) -> Result<(), DataFileError> {
        self.chunks(
            Vec::new(),
            Kind::Symbols,
            &SymbolsMessage::parts(symbols, PART),
        )
    }

    /// Writes the orderly end.
    pub fn finish(mut self, duration_ns: u64) -> Result<(), DataFileError> {
        self.chunks(Vec::new(), Kind::End, &[End { duration_ns }])
    }

    /// Frees what is remembered of the sites in the file, up to a hundred bytes and more for each. An update that follows all the same has its
    /// sites as a whole.
    pub fn forget_sites(&mut self) {
        self.sites = WrittenSites::default();
    }

    /// Bytes written up to now.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Records that the file was renamed; errors use its new name.
    pub fn moved_to(&mut self, path: PathBuf) {
        self.path = path;
    }

    /// The path of the file.
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
            // Removes the incomplete chunk, so that the file ends with a whole one. A pipe or a device can't
            // do that, but a reader accepts an incomplete chunk.
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
            let payload = message.encode_to_vec();
            bytes.extend(match kind {
                Kind::Update => chunk::encode_update(&payload, &mut self.window)?,
                _ => chunk::encode(kind, &payload)?,
            });
            self.file.write_all(&bytes)?;
            self.written += bytes.len() as u64;
            bytes.clear();
        }
        Ok(())
    }
}
