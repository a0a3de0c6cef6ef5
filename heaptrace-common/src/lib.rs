//! What the kernel program and the agent agree on: wire structs, counters and limits.
//!
//! No stage of the flow; both sides of it import this crate. It knows neither aya nor std.
#![no_std]

pub mod cookie;
pub mod counters;
pub mod limits;
pub mod names;
pub mod unwind;
pub mod wire;
