//! From the unwind information of files to the tables that the kernel program walks stacks by.
//!
//! Stage: unwind. It knows files and tables, neither blocks nor what a stack is walked for.

mod files;
mod image;
mod loader;
mod memory;
mod rule;
mod table;
mod vdso;

pub use files::{MappedFile, of_process};
pub use loader::Loader;
pub use table::{Limits, Table, TableError, build, lookup};
pub use vdso::{VDSO, vdso};

#[cfg(test)]
mod tests;
