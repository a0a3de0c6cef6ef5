//! Finds the type of each block from the debug information and the code of the files on its stack.
//!
//! Stage: types. Knows the profile and the names of its functions. The tracer's part decides by what a reader found (`decide.rs`); the reader's part is
//! `read/`. Must not know outputs.

mod chain;
mod containers;
mod cpp;
mod decide;
mod find;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod parsed;
mod people;
mod protocol;
mod read;
mod runtimes;
mod rust;
#[cfg(test)]
mod tests;
mod text;

pub use find::{add_types, find_types};
pub(crate) use read::answer;
