//! Reads `/proc`: running processes, their mappings, their owners, and the files behind mappings.
//!
//! No stage: all stages may use it, and it imports none.

pub mod address_space;
pub mod build_id;
pub mod contents;
pub mod group_text;
pub mod identity;
pub mod library_names;
pub mod maps;
pub mod memory;
pub mod memory_limit;
pub mod owner;
pub mod processes;
pub mod residency;
