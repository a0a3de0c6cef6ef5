//! Placement: the location in a function where a probe costs least, and the registers that hold the arguments
//! there.
//!
//! Stage: probes. Each architecture has its own rules for emulated instructions and for reading code; without
//! rules, the entry is probed. Code comes from files of traced processes and may be anything. It must not
//! know how probes are attached.

mod branches;
pub mod emulated;
mod model;
mod placed;
mod placer;
mod relocate;
mod skipped;
#[cfg(test)]
mod tests;
mod x86;

pub use model::{Architecture, Function, Needs, Placement, Reason};
pub use placed::Placed;
pub use placer::Placer;
pub use skipped::{Fix, MAX_BYTES as MOST_SKIPPED, Skipped, displacement};
