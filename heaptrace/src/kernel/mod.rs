//! The kernel program: loading it, its maps, and what the agent sets while it runs.
//!
//! No stage: it is below all of them.

pub mod btf;
pub mod hits;
pub mod mapped_array;
pub mod process_filter;
pub mod program;
mod rate;
pub mod sizes;
pub mod tracefs;
pub mod version;
