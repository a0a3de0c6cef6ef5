//! One chunk of the data file: kind, lengths, checksum, compressed payload.
//!
//! Stage: profile. The bytes that it reads are not trusted: every length has a limit, and no memory is
//! allocated only because a length asks for it. Knows nothing of the meaning of a payload.

use std::io::{self, Read};

use thiserror::Error;
use zstd::bulk::Compressor;
use zstd::zstd_safe::DCtx;

use crate::profile::budget::{Budget, Exceeded};

/// Most bytes of a payload, so that a crafted file can't make its reader use all memory.
pub(super) const MAX_RAW: usize = 16 << 20;

/// Most bytes of a compressed payload. zstd adds few bytes to data that it can't compress.
const MAX_COMPRESSED: usize = MAX_RAW + MAX_RAW / 128 + 512;

const HEADER: usize = 16;

/// zstd's own default, which is about as fast as a disk.
const LEVEL: i32 = 3;

/// A bit beside the kind: the payload is compressed with those before it, which a reader needs, too. Since version 2.
const WITH_WINDOW: u32 = 1 << 8;

/// The kind of a chunk. The numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::profile) enum Kind {
    /// How the run was made; only the first chunk.
    Start = 1,
    /// An update.
    Update = 2,
    /// Names of locations.
    Symbols = 3,
    /// The orderly end; only the last chunk.
    End = 4,
    /// Blocks of the update before, one by one.
    Blocks = 5,
}

impl Kind {
    fn from_number(number: u32) -> Option<Self> {
        [
            Self::Start,
            Self::Update,
            Self::Symbols,
            Self::End,
            Self::Blocks,
        ]
        .into_iter()
        .find(|kind| *kind as u32 == number)
    }
}

/// Why there is no further chunk.
#[derive(Debug, Error)]
pub(super) enum ChunkError {
    /// The file ends within a chunk.
    #[error("it ends within a chunk")]
    Cut,
    /// The chunk is not as it was written.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    /// The chunk needs too much memory.
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
    /// The system can't read the file.
    #[error("it can't be read further: {0}")]
    Io(#[from] io::Error),
}

/// The last bytes of the updates up to now. Each update resembles those before it.
#[derive(Debug, Default)]
pub(in crate::profile) struct Window {
    bytes: Vec<u8>,
}

impl Window {
    /// Most bytes that are of use.
    const MOST: usize = 256 << 10;

    fn last(&self) -> &[u8] {
        let before = self.bytes.len().saturating_sub(Self::MOST);
        self.bytes.get(before..).unwrap_or_default()
    }

    /// Adds the payload of an update.
    pub(in crate::profile) fn add(&mut self, payload: &[u8]) {
        let new = payload.len().saturating_sub(Self::MOST);
        self.bytes.extend(payload.get(new..).unwrap_or_default());
        // Seldom, so that each byte is moved only once or twice.
        if self.bytes.len() > 4 * Self::MOST {
            let before = self.bytes.len() - Self::MOST;
            self.bytes.drain(..before);
        }
    }
}

/// Builds the chunk of an update, which can be read only after those before it.
pub(in crate::profile) fn encode_update(
    payload: &[u8],
    window: &mut Window,
) -> io::Result<Vec<u8>> {
    let chunk = encode_after(Kind::Update, payload, window.last());
    window.add(payload);
    chunk
}

/// Builds a chunk.
pub(super) fn encode(kind: Kind, payload: &[u8]) -> io::Result<Vec<u8>> {
    encode_after(kind, payload, &[])
}

fn encode_after(kind: Kind, payload: &[u8], before: &[u8]) -> io::Result<Vec<u8>> {
    if payload.len() > MAX_RAW {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "one record is larger than a chunk can be",
        ));
    }
    let mut compressor = Compressor::new(LEVEL)?;
    let mut number = kind as u32;
    if !before.is_empty() {
        number |= WITH_WINDOW;
        let context = compressor.context_mut();
        context.ref_prefix(before).map_err(zstd_error)?;
    }
    let compressed = compressor.compress(payload)?;
    let mut out = Vec::with_capacity(HEADER + compressed.len());
    out.extend(number.to_le_bytes());
    // Both lengths are below 2^32: the first bound is checked above, the second follows from it.
    out.extend((compressed.len() as u32).to_le_bytes());
    out.extend((payload.len() as u32).to_le_bytes());
    out.extend(checksum(&out, &compressed).to_le_bytes());
    out.extend(compressed);
    Ok(out)
}

/// The error of a number that zstd returned.
fn zstd_error(code: usize) -> io::Error {
    io::Error::other(zstd::zstd_safe::get_error_name(code))
}

/// A chunk as it stands in a file, with a checksum that matches.
pub(super) struct Packed {
    pub(super) kind: Kind,
    has_window: bool,
    /// All of its bytes.
    pub(super) bytes: Vec<u8>,
    raw_len: usize,
}

/// Reads the next chunk; `None` at the end of the file.
pub(super) fn decode(
    reader: &mut impl Read,
    window: &mut Window,
    budget: &mut Budget,
) -> Result<Option<(Kind, Vec<u8>)>, ChunkError> {
    let chunk = read_packed(reader)?;
    chunk
        .map(|chunk| unpack(&chunk, window, budget))
        .transpose()
}

/// Unpacks a chunk.
pub(super) fn unpack(
    chunk: &Packed,
    window: &mut Window,
    budget: &mut Budget,
) -> Result<(Kind, Vec<u8>), ChunkError> {
    budget.unpack(chunk.bytes.len() as u64, chunk.raw_len as u64)?;
    let compressed = chunk.bytes.get(HEADER..).unwrap_or_default();
    let before = if chunk.has_window { window.last() } else { &[] };
    let raw = decompress(compressed, chunk.raw_len, before)
        .map_err(|_| ChunkError::Damaged("a chunk can't be decompressed"))?;
    if raw.len() != chunk.raw_len {
        return Err(ChunkError::Damaged("a chunk has the wrong length"));
    }
    if chunk.kind == Kind::Update {
        window.add(&raw);
    }
    Ok((chunk.kind, raw))
}

fn decompress(compressed: &[u8], length: usize, before: &[u8]) -> Result<Vec<u8>, usize> {
    let mut context = DCtx::create();
    if !before.is_empty() {
        context.ref_prefix(before)?;
    }
    let mut raw = Vec::with_capacity(length);
    context.decompress(&mut raw, compressed)?;
    Ok(raw)
}

/// Reads the next chunk without unpacking it; `None` at the end of the file.
pub(super) fn read_packed(reader: &mut impl Read) -> Result<Option<Packed>, ChunkError> {
    let header = read_up_to(reader, HEADER)?;
    if header.is_empty() {
        return Ok(None);
    }
    if header.len() < HEADER {
        return Err(ChunkError::Cut);
    }
    let number = u32_at(&header, 0);
    let compressed_len = u32_at(&header, 4) as usize;
    let raw_len = u32_at(&header, 8) as usize;
    let expected = u32_at(&header, 12);
    if compressed_len > MAX_COMPRESSED || raw_len > MAX_RAW {
        return Err(ChunkError::Damaged("a chunk is larger than allowed"));
    }
    let compressed = read_up_to(reader, compressed_len)?;
    if compressed.len() < compressed_len {
        return Err(if ends_in_order(&compressed) {
            ChunkError::Damaged("a chunk is longer than the file")
        } else {
            ChunkError::Cut
        });
    }
    if checksum(&header[..12], &compressed) != expected {
        return Err(ChunkError::Damaged("a checksum does not match"));
    }
    let has_window = number & WITH_WINDOW != 0;
    let kind = Kind::from_number(number & !WITH_WINDOW)
        .filter(|kind| !has_window || *kind == Kind::Update)
        .ok_or(ChunkError::Damaged("a chunk of unknown kind"))?;
    let mut bytes = header;
    bytes.extend(compressed);
    Ok(Some(Packed {
        kind,
        has_window,
        bytes,
        raw_len,
    }))
}

/// Whether the rest of a file ends with the chunk that ends a run: then the file is not cut off.
fn ends_in_order(rest: &[u8]) -> bool {
    /// More bytes than such a chunk has.
    const MOST: usize = 64;
    let tail = &rest[rest.len().saturating_sub(MOST)..];
    (0..tail.len().saturating_sub(HEADER)).any(|at| {
        let (header, compressed) = tail[at..].split_at(HEADER);
        u32_at(header, 0) == Kind::End as u32
            && u32_at(header, 4) as usize == compressed.len()
            && u32_at(header, 12) == checksum(&header[..12], compressed)
    })
}

/// The checksum covers the head, too: a damaged kind would make one message of another.
fn checksum(head: &[u8], compressed: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(compressed);
    hasher.finalize()
}

/// Reads `len` bytes, or fewer at the end of the file.
pub(super) fn read_up_to(reader: &mut impl Read, len: usize) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    reader.by_ref().take(len as u64).read_to_end(&mut out)?;
    Ok(out)
}

/// The little-endian number at an offset; 0 beyond the end.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |four| u32::from_le_bytes(*four))
}
