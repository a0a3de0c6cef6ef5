//! Stage profile: the model that every output reads, and the data file that stores it.

mod block_classes;
mod blocks;
mod budget;
mod datafile;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod history;
mod memory_blocks;
mod model;
mod range;
mod subtract;
mod symbols;
#[cfg(test)]
mod tests;
mod types;
mod wire;

pub use block_classes::{BlockClass, BlockCondition, BlockNumber};
pub use blocks::{BlockList, BlockReading, PastBlock, ProcessBlocks, WantedBlocks};
#[cfg(test)]
pub(crate) use datafile::crafted;
pub use datafile::{
    DataFile, DataFileError, DataFileWriter, ReadOptions, Recording, is_data_file, open, read,
    read_from,
};
pub use history::{Counter, History, Period};
pub use memory_blocks::MemoryBlocks;
pub use model::{FoldError, Mode, Profile, Range, RunEnd, RunInfo, SizeRange, Snapshot};
pub use symbols::{Frame, Improvement, StringId, Symbols};
pub use types::{BlockType, LiveClass, Types, Way};
