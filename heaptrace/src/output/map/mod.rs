//! The memory map of processes: what resident memory is made of, which sites keep it, and where everything is: `heaptrace map`.
//!
//! Stage: output. `account.rs` finds the numbers. JSON and the picture have files of their own; the text is a page of the report.

mod account;
mod cells;
mod color;
mod json;
mod name;
mod picture;
mod pieces;
mod process;
mod row;
mod spans;
#[cfg(test)]
mod tests;

pub(super) use account::{NEARLY_EMPTY, SiteMemory, States};
pub use color::MapColor;
pub use json::write_map_json;
pub use picture::write_map_picture;
pub(super) use process::not_read;
pub use process::{ProcessMap, process_maps};
pub(super) use row::What;
