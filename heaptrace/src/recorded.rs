//! Memory of real processes as files, so that decoders are tested with versions of runtimes that are not installed.
//!
//! Below the stages. Only in tests, and with the feature `images`: then each stack of JavaScript or Java frames that a run reads
//! becomes a file in the folder that `HEAPTRACE_IMAGES` names. Must not know what the memory contains.

#[cfg(feature = "images")]
use std::cell::RefCell;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The level at which files are compressed, and the most bytes of one.
#[cfg(feature = "images")]
const LEVEL: i32 = 19;
#[cfg(test)]
const MAX_BYTES: usize = 4 << 20;

/// What was read of the memory of a process.
#[derive(Debug, Default)]
pub(crate) struct Pieces(BTreeMap<u64, u8>);

impl Pieces {
    /// The same memory, of which some bytes are others, and some bytes are missing.
    #[cfg(test)]
    pub(crate) fn damaged(&self, mut random: impl FnMut(u64) -> u64) -> Self {
        let mut bytes = self.0.clone();
        for byte in bytes.values_mut() {
            if random(40) == 0 {
                *byte = random(256) as u8;
            }
        }
        bytes.retain(|_, _| random(2000) != 0);
        Self(bytes)
    }

    /// Reads from an address on, as far as the memory is known. Returns how many bytes were read.
    #[cfg(test)]
    pub(crate) fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let mut read = 0;
        for (at, to) in (address..).zip(buffer) {
            let Some(byte) = self.0.get(&at) else { break };
            *to = *byte;
            read += 1;
        }
        read
    }
}

/// A memory that remembers what is read of it.
#[cfg(feature = "images")]
pub(crate) struct Recorder<'a, M> {
    pub(crate) memory: &'a M,
    read: RefCell<Pieces>,
}

#[cfg(feature = "images")]
impl<'a, M> Recorder<'a, M> {
    pub(crate) fn new(memory: &'a M) -> Self {
        Self {
            memory,
            read: RefCell::default(),
        }
    }

    /// Remembers bytes that were read.
    pub(crate) fn note(&self, address: u64, bytes: &[u8]) {
        let mut read = self.read.borrow_mut();
        read.0.extend((address..).zip(bytes.iter().copied()));
    }
}

/// Writes a file whole.
#[cfg(feature = "images")]
fn write(path: &std::path::Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write as _;
    let pending = crate::create::Destination::open(path)?.begin()?;
    pending.file()?.write_all(bytes)?;
    pending.commit().map(drop)
}

/// A stack of frames, and the memory that their names were read from.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Recorded {
    /// What the decoder was given beside the memory.
    pub(crate) given: Vec<u64>,
    /// Pairs of words, or triples.
    pub(crate) frames: Vec<u64>,
    /// What it found, a text for each frame.
    pub(crate) found: Vec<String>,
    /// The memory, by address.
    memory: Vec<(u64, Vec<u8>)>,
}

impl Recorded {
    /// Writes a file in the folder for images, if there is one.
    #[cfg(feature = "images")]
    pub(crate) fn write<M>(
        kind: &str,
        given: Vec<u64>,
        frames: Vec<u64>,
        found: Vec<String>,
        recorder: Recorder<'_, M>,
    ) {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let Some(folder) = std::env::var_os("HEAPTRACE_IMAGES") else {
            return;
        };
        let mut memory = Vec::<(u64, Vec<u8>)>::new();
        for (address, byte) in recorder.read.into_inner().0 {
            match memory.last_mut() {
                Some((start, bytes)) if *start + bytes.len() as u64 == address => bytes.push(byte),
                _ => memory.push((address, vec![byte])),
            }
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::path::Path::new(&folder).join(format!("{kind}-{number:04}"));
        let recorded = Self {
            given,
            frames,
            found,
            memory,
        };
        let text = recorded.found.join("\n");
        let written = zstd::encode_all(crate::reader::encode(&recorded).as_slice(), LEVEL)
            .and_then(|bytes| write(&path, &bytes))
            .and_then(|()| write(&path.with_extension("txt"), text.as_bytes()));
        if let Err(error) = written {
            log::warn!("cannot write {}: {error}", path.display());
        }
    }

    /// Reads a file.
    #[cfg(test)]
    pub(crate) fn read(file: &[u8]) -> (Self, Pieces) {
        let bytes = zstd::bulk::decompress(file, MAX_BYTES).unwrap();
        let recorded: Self = crate::reader::decode(&bytes).unwrap();
        let pieces = recorded.memory.iter();
        let pieces = pieces.flat_map(|(start, bytes)| (*start..).zip(bytes.iter().copied()));
        let pieces = Pieces(pieces.collect());
        (recorded, pieces)
    }
}
