//! Stage profile: the model that every output reads, and the data file that keeps it.

mod model;
mod symbols;

pub use model::{FoldError, Mode, Profile, RunEnd, RunInfo};
pub use symbols::{Frame, StringId, Symbols};
