//! The message of a set of counters, with their standard errors.
//!
//! Stage: profile.

use prost::Message;

use crate::join::{Errors, Totals};

/// [`Totals`], as a message.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Counters {
    #[prost(uint64, tag = "1")]
    allocations: u64,
    #[prost(uint64, tag = "2")]
    allocated_bytes: u64,
    #[prost(uint64, tag = "3")]
    frees: u64,
    #[prost(uint64, tag = "4")]
    freed_bytes: u64,
    #[prost(uint64, tag = "5")]
    live_allocations: u64,
    #[prost(uint64, tag = "6")]
    live_bytes: u64,
    #[prost(uint64, tag = "7")]
    peak_live_bytes: u64,
    #[prost(uint64, tag = "8")]
    temporary_allocations: u64,
    #[prost(uint64, tag = "9")]
    allocations_error: u64,
    #[prost(uint64, tag = "10")]
    allocated_bytes_error: u64,
    #[prost(uint64, tag = "11")]
    frees_error: u64,
    #[prost(uint64, tag = "12")]
    freed_bytes_error: u64,
    #[prost(uint64, tag = "13")]
    live_allocations_error: u64,
    #[prost(uint64, tag = "14")]
    live_bytes_error: u64,
    #[prost(uint64, tag = "15")]
    peak_live_bytes_error: u64,
    #[prost(uint64, tag = "16")]
    temporary_allocations_error: u64,
    #[prost(uint64, tag = "17")]
    uncertain_allocations: u64,
    #[prost(uint64, tag = "18")]
    uncertain_bytes: u64,
}

impl From<Totals> for Counters {
    fn from(totals: Totals) -> Self {
        Self {
            allocations: totals.allocations,
            allocated_bytes: totals.allocated_bytes,
            frees: totals.frees,
            freed_bytes: totals.freed_bytes,
            live_allocations: totals.live_allocations,
            live_bytes: totals.live_bytes,
            uncertain_allocations: totals.uncertain_allocations,
            uncertain_bytes: totals.uncertain_bytes,
            peak_live_bytes: totals.peak_live_bytes,
            temporary_allocations: totals.temporary_allocations,
            allocations_error: totals.errors.allocations,
            allocated_bytes_error: totals.errors.allocated_bytes,
            frees_error: totals.errors.frees,
            freed_bytes_error: totals.errors.freed_bytes,
            live_allocations_error: totals.errors.live_allocations,
            live_bytes_error: totals.errors.live_bytes,
            peak_live_bytes_error: totals.errors.peak_live_bytes,
            temporary_allocations_error: totals.errors.temporary_allocations,
        }
    }
}

impl From<Counters> for Totals {
    fn from(counters: Counters) -> Self {
        Self {
            allocations: counters.allocations,
            allocated_bytes: counters.allocated_bytes,
            frees: counters.frees,
            freed_bytes: counters.freed_bytes,
            live_allocations: counters.live_allocations,
            live_bytes: counters.live_bytes,
            uncertain_allocations: counters.uncertain_allocations,
            uncertain_bytes: counters.uncertain_bytes,
            peak_live_bytes: counters.peak_live_bytes,
            temporary_allocations: counters.temporary_allocations,
            errors: Errors {
                allocations: counters.allocations_error,
                allocated_bytes: counters.allocated_bytes_error,
                frees: counters.frees_error,
                freed_bytes: counters.freed_bytes_error,
                live_allocations: counters.live_allocations_error,
                live_bytes: counters.live_bytes_error,
                peak_live_bytes: counters.peak_live_bytes_error,
                temporary_allocations: counters.temporary_allocations_error,
            },
        }
    }
}
