//! The fast path: calls of allocator functions that are not sampled pass the probes by.
//!
//! Stage: probes. Code of ours in the target, reached through the slots by which its files call the allocator, decides about
//! each call. Must not know what the kernel program does with a sampled call.

pub mod code;
pub mod earlier;
pub mod eligible;
mod forwarders;
mod hand;
pub mod installer;
mod mapping;
pub mod messages;
pub mod patch;
pub mod plan;
mod records;
mod remote;
mod serve;
pub mod slots;
pub mod stubs;
pub mod survey;
mod target_memory;
mod written_stubs;
