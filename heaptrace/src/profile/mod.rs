//! Stage profile: the model that every output reads, and the data file that keeps it.

mod datafile;
mod model;
mod symbols;
#[cfg(test)]
mod tests;
mod wire;

pub use datafile::{
    DataFileError, DataFileWriter, Recording, is_data_file, read, read_at, read_from,
};
pub use model::{FoldError, Mode, Profile, RunEnd, RunInfo, SizeRange, Snapshot};
pub use symbols::{Frame, StringId, Symbols};
