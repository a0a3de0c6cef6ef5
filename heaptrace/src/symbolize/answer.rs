//! What a reader is asked of names, and what it says.
//!
//! Stage: symbolize. Plain values that go between two processes.

use serde::{Deserialize, Serialize};

/// Asks what an ELF file says of itself; and, if it was looked for as another one's debug file, whether it is that.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct FactsQuestion {
    pub(super) of: Option<Stripped>,
}

/// A file that was stripped, by what tells its debug file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Stripped {
    pub(super) build_id: Vec<u8>,
    /// The checksum of a whole file, for one without a build id.
    pub(super) crc: Option<u32>,
}

/// What an ELF file says of itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Facts {
    pub(super) build_id: Vec<u8>,
    /// Whether it has DWARF that can be read without another file.
    pub(super) is_whole: bool,
    /// Whether it names other files.
    pub(super) names_files: bool,
    /// The name of its debug file, and that one's checksum.
    pub(super) debug_link: Option<(String, u32)>,
    /// The path of what it shares with other debug files.
    pub(super) alt_link: Option<String>,
    /// Whether it is the debug file that was looked for.
    pub(super) is_wanted: bool,
}

/// Asks for the names of addresses. Beside it stand the file, its debug file, and what that one shares.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct NamesQuestion {
    /// Offsets in the file.
    pub(super) offsets: Vec<u64>,
    /// The debug file's path, where it may name others; empty where it may not.
    pub(super) debug: Option<String>,
    /// The path of what it shares.
    pub(super) shared: Option<String>,
}

/// A function at an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Found {
    pub(super) function: String,
    pub(super) file: Option<String>,
    pub(super) line: u32,
    pub(super) inlined: bool,
}

/// The functions at each address, innermost first; none where nothing is known.
pub(super) type Names = Vec<Vec<Found>>;
