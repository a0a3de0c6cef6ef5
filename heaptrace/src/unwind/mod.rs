//! From the unwind information of a file to the tables that the kernel program walks stacks by.
//!
//! Stage: unwind. It knows files and tables, neither processes nor what a stack is walked for.

mod image;
mod rule;
mod table;

pub use table::{Limits, Table, TableError, build, lookup};

#[cfg(test)]
mod tests;
