//! What the kernel program and the agent agree on: wire structs, counters and limits.
//!
//! No stage of the flow; both sides of it import this crate. It knows neither aya nor std.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod cookie;
pub mod counters;
pub mod limits;
mod logarithm;
pub mod names;
pub mod places;
pub mod rows;
pub mod sampling;
pub mod trampoline;
pub mod unwind;
pub mod wire;
