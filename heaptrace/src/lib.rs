//! Zero-instrumentation heap tracing for Linux.
//!
//! Each stage of the flow has a folder, and imports only earlier stages (`tests/` checks that):
//! `probes` → `unwind` → `events` → `join` → `profile` → `symbolize` → `types` → `output` → `view`.

pub mod account;
pub mod cli;
pub mod config;
pub mod core_file;
pub mod create;
pub mod doctor;
mod elf;
pub mod events;
#[cfg(feature = "fuzz")]
pub mod fuzz;
pub mod hotspot;
pub mod jit;
pub mod jobs;
pub mod join;
pub mod kernel;
pub mod open;
pub mod output;
pub mod probes;
pub mod proc;
pub mod profile;
mod ptrace;
pub mod python;

#[cfg(test)]
mod random;
pub mod reachability;
pub mod reader;
#[cfg(any(test, feature = "images"))]
mod recorded;
pub mod sandbox;
pub mod session;
pub mod symbolize;
pub mod sys;
pub mod text;
pub mod tty;
pub mod types;
pub mod units;
pub mod unwind;
pub mod v8;
pub mod view;
