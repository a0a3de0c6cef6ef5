//! The kernel program: loading it, its maps, and the values that the agent changes while it runs.
//!
//! No stage: every stage may import this folder.

pub mod btf;
pub mod fast;
pub mod helpers;
pub mod jvms;
pub mod mapped_array;
pub mod next_programs;
mod offsets;
pub mod pod;
pub mod probe_hits;
pub mod process_filter;
pub mod program;
mod rate;
mod reached;
pub(crate) mod ring_positions;
pub mod runtime_images;
pub mod sizes;
pub mod tracefs;
pub mod version;
