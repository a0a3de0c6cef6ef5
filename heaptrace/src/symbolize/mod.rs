//! Finds the function, source file and line for each code address of a profile.
//!
//! Stage: symbolize. Knows the profile's tables of modules and locations. Must not know how names are displayed.

mod debug_file;
mod debuginfod;
mod demangle;
mod elf;
mod files;
mod folders;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod image;
mod lookup;
mod packed;
mod panics;
mod parallel;
mod parts;
mod protocol;
mod split;
mod symbolizer;
mod table;
#[cfg(test)]
pub(crate) mod tests;

pub use debug_file::DebugSources;
pub use debuginfod::{Debuginfod, NoDebuginfod};
#[cfg(test)]
pub(crate) use demangle::demangle;
pub(crate) use demangle::demangle_bare;
pub(crate) use elf::ElfFacts;
pub use files::{ModuleFiles, OnDisk};
pub(crate) use image::{Image, Section};
pub(crate) use lookup::Lookup;
pub(crate) use panics::catch_panic;
#[cfg(feature = "fuzz")]
pub(crate) use panics::own_panics;
pub use parallel::{look_up_all, worthwhile};
pub(crate) use split::Passed;
pub use symbolizer::Symbolizer;
