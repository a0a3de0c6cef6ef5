//! What a process gives up before it reads what others made: system calls, files, capabilities, memory.
//!
//! No stage of the flow; imports none. Each function takes something away for good. It knows neither who calls it nor why.

pub mod landlock;
pub mod rights;
pub mod seccomp;

pub use rights::{Kept, Limits};

/// How much of what was asked for this kernel could take away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// All of it.
    Whole,
    /// Nothing: the kernel does not have it.
    Unsupported,
}
