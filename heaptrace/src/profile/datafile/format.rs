//! The head of a data file.
//!
//! Stage: profile.

/// The first bytes of every data file. The first byte is no text, and a transfer in text mode would change
/// the last one.
pub(super) const MAGIC: [u8; 8] = *b"\x89HTRACE\n";

/// The version of the format that is written, and the newest one that is read. Since version 2, updates are compressed with those before them,
/// and have differences from them.
pub(super) const VERSION: u32 = 2;
