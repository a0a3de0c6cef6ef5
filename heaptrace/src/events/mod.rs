//! Stage events: what the kernel sends, decoded.
//!
//! Two streams: the kernel program's ring (allocations, frees, stacks, processes) and perf's own
//! records of mappings and process births, the sideband. Both carry the monotonic clock.

#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
pub mod record;
pub mod sideband;
