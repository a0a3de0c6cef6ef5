//! The data file: `record` writes it during a run, and every offline command reads it.
//!
//! Stage: profile. The file begins with magic bytes and a version. Then come chunks, each with its lengths, a
//! checksum and a message that is compressed with zstd. An update needs only those before it (its sites can be
//! differences from theirs), so a file that is cut anywhere is a true picture of an earlier moment. Knows nothing of where updates come from.

mod chunk;
#[cfg(test)]
mod crafted;
mod error;
mod format;
mod read;
#[cfg(test)]
mod tests;
mod write;

#[cfg(feature = "fuzz")]
pub(in crate::profile) use chunk::{Kind, Window, encode_update};
#[cfg(test)]
pub(crate) use crafted::crafted;
pub use error::DataFileError;
#[cfg(feature = "fuzz")]
pub(in crate::profile) use read::read_with_blocks;
pub use read::{DataFile, ReadOptions, Recording, is_data_file, open, read, read_from};
pub use write::DataFileWriter;
