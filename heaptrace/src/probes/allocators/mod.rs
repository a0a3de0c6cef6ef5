//! Discovery: finds the allocator functions that have to be probed, and the files that they are in.
//!
//! Stage: probes. Searches the files that a process has mapped, or that a command will map, for known allocators. ELF
//! files of traced processes may contain anything. So a reader process parses them (`inspect.rs` and the files
//! that it uses), and `ask.rs` sends it questions. Must not know how probes are attached.

mod answer;
mod ask;
mod code;
mod debug;
mod find;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod hooks;
mod inspect;
mod loads;
mod markers;
mod model;
mod recognize;
mod symbols;
#[cfg(test)]
mod tests;

pub use find::{
    Effort, Found, LookFor, Numbers, files_of_command, of_command, of_file, of_mapped, of_process,
};
pub use hooks::{c_library, other_libraries};
pub(crate) use inspect::answer;
pub(crate) use loads::CHANGED_BY_CALLS;
pub use model::{Allocator, Hook, OnReturn, ProbedFunction, RET_PROGRAM, Unprobed};
pub use recognize::MAPPINGS_KIND;
pub(crate) use symbols::unpacked;
#[cfg(test)]
pub(crate) use tests::of_this_process;
