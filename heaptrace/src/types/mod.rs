//! Finds the type of each block from the debug information and the code of the files on its stack.
//!
//! Stage: types. Knows the profile and the names of its functions. The tracer's part decides by what a reader found (`decide.rs`); the reader's part is
//! `read/`. Must not know outputs.

mod absl;
mod by_memory;
mod chain;
mod containers;
mod cpp;
mod decide;
mod find;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod internal;
mod live;
mod live_protocol;
mod parsed;
mod people;
mod protocol;
mod qt;
mod read;
mod runtimes;
mod rust;
#[cfg(test)]
mod tests;
mod text;

pub use by_memory::Inspections;
pub use find::{add_types, find_types};
pub use live::Inspector;
pub(crate) use read::{answer, answer_classes};
