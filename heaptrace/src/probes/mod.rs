//! Stage probes: what may be traced, the kernel program, and where it is attached.

pub mod allocators;
pub mod attach;
pub mod btf;
pub mod calibration;
pub mod capabilities;
pub mod choice;
pub mod elf;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
pub mod guardian;
pub mod image;
pub mod launch;
pub mod machine;
pub mod maps;
pub mod overhead;
pub mod owner;
pub mod placement;
mod plan;
pub mod program;
mod rate;
pub mod refusal;
pub mod running;
pub mod sizes;
pub mod tracefs;
pub mod turns;
