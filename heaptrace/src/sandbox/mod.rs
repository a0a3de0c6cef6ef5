//! Restrictions that a process sets on itself before it reads untrusted input: system calls, files, capabilities, memory.
//!
//! No stage of the flow; imports none. No restriction can be undone. This folder must not know why a caller wants one.

pub mod landlock;
pub mod rights;
pub mod seccomp;

pub use rights::{Kept, Limits};
