//! Definitions that the kernel program and the agent share: wire structs, argument positions, counters and
//! limits.
//!
//! No stage of the flow; both sides import this crate. It must not know aya or std.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod arguments;
pub mod cookie;
pub mod counters;
pub mod counting_filter;
pub mod hints;
pub mod java;
pub mod limits;
mod logarithm;
pub mod names;
pub mod next;
pub mod rows;
pub mod sampling;
pub mod trampoline;
pub mod unwind;
pub mod wire;
