//! The questions to a reader about debug files and names, and its answers.
//!
//! Stage: symbolize. Plain values that are sent between two processes.

use serde::{Deserialize, Serialize};

/// Most inlined functions that are accepted at one address.
pub(super) const MAX_INLINED: usize = 256;

/// Asks for the facts of an ELF file. For a candidate debug file, also asks whether it belongs to a stripped file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct FactsQuestion {
    pub(super) of: Option<StrippedFile>,
}

/// The data by which the debug file of a stripped file is recognized.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StrippedFile {
    pub(super) build_id: Vec<u8>,
    /// The checksum of the whole debug file, if the stripped file has no build id.
    pub(super) crc: Option<u32>,
}

/// Facts about an ELF file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Facts {
    pub(super) build_id: Vec<u8>,
    /// Whether it has DWARF that can be read without another file.
    pub(super) is_self_contained: bool,
    /// Whether it refers to other files.
    pub(super) names_files: bool,
    /// The name of its debug file, and that file's checksum.
    pub(super) debug_link: Option<(String, u32)>,
    /// The path of the supplementary file that it shares with other debug files, and that file's build id.
    pub(super) alt_link: Option<(String, Vec<u8>)>,
    /// Whether it is the debug file of the stripped file in the question.
    pub(super) is_wanted: bool,
    /// Whether parts of its DWARF may be in other files, by unit.
    pub(super) may_have_parts: bool,
}

/// The longest path of a unit's file, in bytes.
pub(super) const MAX_PATH: usize = 4096;

/// Most units in an answer.
pub(super) const MAX_WANTED: usize = 4096;

/// Asks which units a reader needs for addresses of a program whose debug information is in several files (split DWARF). Sent with it: the
/// program, its debug file, and files that the reader takes before it answers: packages, and then files of units.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct UnitsQuestion {
    /// Offsets in the program's file, or link-time addresses.
    pub(super) offsets: Vec<u64>,
    /// Whether they are addresses.
    pub(super) are_addresses: bool,
    /// Whether the debug information is in a debug file.
    pub(super) has_debug: bool,
    /// How many packages.
    pub(super) packages: usize,
}

/// The units that a reader needs and does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UnitsAnswer {
    pub(super) wanted: Vec<WantedUnit>,
    /// How many more it needs, beyond the limits.
    pub(super) left_out: u64,
}

/// A unit of a program whose debug information is in another file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WantedUnit {
    /// The id by which that file is recognized.
    pub(super) id: u64,
    /// The folder that its name is relative to: where the compiler ran.
    pub(super) folder: Vec<u8>,
    /// Its name, as the compiler wrote it.
    pub(super) name: Vec<u8>,
}

/// Asks for the names of addresses. Three files are sent with it: the module, its debug file, and the supplementary file. If the module itself
/// is not at hand, its debug file stands for it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct NamesQuestion {
    /// Offsets in the module's file, or link-time addresses.
    pub(super) offsets: Vec<u64>,
    /// Whether they are addresses.
    pub(super) are_addresses: bool,
    /// The debug file's path. Empty if the debug file refers to no other file.
    pub(super) debug: Option<String>,
    /// The path of the supplementary file.
    pub(super) shared: Option<String>,
    /// Whether to read the tables of symbols alone, because reading the debug information failed before.
    pub(super) symbols_only: bool,
}

/// A function at an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FoundFrame {
    pub(super) function: String,
    pub(super) file: Option<String>,
    pub(super) line: u32,
    pub(super) inlined: bool,
}

/// The functions at each address, innermost first. An empty list means that no name is known.
pub(super) type Names = Vec<Vec<FoundFrame>>;
