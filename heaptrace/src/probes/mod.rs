//! Stage probes: what may be traced, the kernel program, and where it is attached.

pub mod allocators;
pub mod attach;
pub mod calibration;
pub mod duty_cycle;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
pub mod guardian;
pub mod image;
pub mod launch;
pub mod placement;
mod plan;
pub mod refusal;
