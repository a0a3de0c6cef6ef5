//! Converts the unwind information of files to tables, and loads them for the kernel program, which walks stacks by them.
//!
//! Stage: unwind. Knows files and tables. Must not know heap blocks, nor why a stack is walked.

mod build;
mod cache;
mod cache_format;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod image;
mod kernel_arrays;
mod loader;
mod mapped_file;
mod ranges;
mod raw_walk;
mod request;
mod rule;
mod store;
mod table;
mod tables;
mod unknown;
mod vdso;

pub use build::build;
pub use cache::default_folder;
pub use mapped_file::{MappedFile, UsingProcess, of_process, probable_key};
pub use raw_walk::{Code, Process, RawFrame, SentWords, continue_walk};
pub(crate) use request::{answer_fingerprint, answer_table};
pub use table::{Limits, Table, TableError, lookup};
pub use tables::{FileTable, TableCounts, Tables};
pub use vdso::{VDSO, vdso};

#[cfg(test)]
mod tests;
