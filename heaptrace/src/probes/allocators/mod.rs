//! Allocators: which functions of which files are to be probed.
//!
//! Stage: probes. Finds the allocators that are known among the files that a process has mapped, or
//! that a command is going to map. ELF files of traced processes may be anything: what reads them
//! runs in a reader, and `ask.rs` stands between. Knows nothing of attaching.

mod answer;
mod ask;
mod code;
mod debug;
mod find;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod hooks;
mod inspect;
mod known;
mod model;
mod names;
mod symbols;
#[cfg(test)]
mod tests;

pub use find::{
    Effort, Found, LookFor, files_of_command, of_command, of_file, of_mapped, of_process,
};
pub(crate) use inspect::answer;
pub use known::MAPPINGS_KIND;
pub use model::{Allocator, Hook, OnReturn, Place, RET_PROGRAM, Unprobed};
pub use names::{is_allocator, is_of_c_library};
