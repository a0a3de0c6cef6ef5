//! From the unwind information of files to the tables that the kernel program walks stacks by.
//!
//! Stage: unwind. It knows files and tables, neither blocks nor what a stack is walked for.

mod arrays;
mod ask;
mod build;
mod cache;
mod cache_format;
mod files;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod image;
mod loader;
mod ranges;
mod rule;
mod store;
mod table;
mod tables;
mod vdso;

pub(crate) use ask::{answer_fingerprint, answer_table};
pub use build::build;
pub use cache::default_folder;
pub use files::{MappedFile, User, of_process};
pub use table::{Limits, Table, TableError, lookup};
pub use tables::{TableCounts, Tables};
pub use vdso::{VDSO, vdso};

#[cfg(test)]
mod tests;
