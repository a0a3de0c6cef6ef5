//! Stage symbolize: code addresses get the names of their functions, files and lines.
//!
//! Knows the profile's tables of modules and locations, and nothing of what is done with names.

mod answer;
mod debug_file;
mod demangle;
mod elf;
mod files;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod lookup;
mod quiet;
mod symbolizer;
#[cfg(test)]
mod tests;

pub use files::{ModuleFiles, OnDisk};
pub(crate) use lookup::Lookup;
pub use symbolizer::Symbolizer;
