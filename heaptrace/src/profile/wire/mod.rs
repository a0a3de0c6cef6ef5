//! The messages inside the data file's chunks, and their conversion from and to plain types.
//!
//! Stage: profile. New fields get new tags; a tag never changes its meaning. Knows nothing of chunks, files
//! and checksums.

mod blocks;
mod changes;
mod counters;
mod duty_cycle;
mod error;
mod fields;
mod function;
mod inspected;
mod killed_at;
mod marks;
mod memory;
mod memory_map;
pub(super) mod merge;
mod parts;
mod process_end;
mod quality;
mod reachability;
mod run;
mod site;
mod started;
mod symbols;
mod traced;
mod types;
mod update;
mod usage;

pub(super) use blocks::BlocksMessage;
pub(super) use changes::WrittenSites;
pub(super) use error::WireError;
pub(super) use run::{End, Start};
pub(super) use symbols::SymbolsMessage;
pub(super) use update::UpdateMessage;
