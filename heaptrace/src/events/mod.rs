//! Stage events: decodes the records that the kernel sends.
//!
//! There are two streams: the ring of the kernel program (allocations, frees, stacks, processes), and the
//! sideband, which is perf's own records of mappings, forks and execs. The times of both are on the monotonic
//! clock.

mod bytes;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
pub mod java;
pub mod python;
pub mod raw_stack;
pub mod record;
pub mod sideband;
pub mod v8;
