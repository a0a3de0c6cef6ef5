//! The fast path: code of ours in the target, which the target's linkage slots point to.
//!
//! Part of the stage probes. Must not know what the kernel program counts.

mod hand;
pub mod installer;
mod mapping;
pub mod messages;
mod remote;
mod serve;
mod target_memory;
