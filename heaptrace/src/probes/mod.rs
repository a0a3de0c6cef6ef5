//! Stage probes: finds allocators, launches a command, and puts probes on functions.
//!
//! Must not know what the kernel program sends, nor what the doctor checks.

pub mod allocators;
pub mod attach;
pub mod calibration;
mod dynamic;
pub mod fast;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
pub mod guardian;
mod helper;
pub mod image;
pub mod launch;
mod perf_events;
pub mod placement;
pub mod plan;
mod probed_file;
pub mod refusal;
pub mod target_events;
pub mod ties;
