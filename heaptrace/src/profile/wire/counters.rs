//! The message of a set of counters, with their standard errors and unseen parts.
//!
//! Stage: profile.

use prost::Message;

use crate::join::{Errors, Totals, Unseen};

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
    #[prost(uint64, tag = "19")]
    left_allocations: u64,
    #[prost(uint64, tag = "20")]
    left_bytes: u64,
    #[prost(uint64, tag = "21")]
    left_allocations_error: u64,
    #[prost(uint64, tag = "22")]
    left_bytes_error: u64,
    #[prost(uint64, tag = "23")]
    left_allocations_unseen: u64,
    #[prost(uint64, tag = "24")]
    left_bytes_unseen: u64,
    #[prost(uint64, tag = "40")]
    mean_bytes: u64,
    #[prost(uint64, tag = "41")]
    allocations_unseen: u64,
    #[prost(uint64, tag = "42")]
    allocated_bytes_unseen: u64,
    #[prost(uint64, tag = "43")]
    frees_unseen: u64,
    #[prost(uint64, tag = "44")]
    freed_bytes_unseen: u64,
    #[prost(uint64, tag = "45")]
    live_allocations_unseen: u64,
    #[prost(uint64, tag = "46")]
    live_bytes_unseen: u64,
    #[prost(uint64, tag = "47")]
    peak_live_bytes_unseen: u64,
    #[prost(uint64, tag = "48")]
    temporary_allocations_unseen: u64,
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
            left_allocations: totals.left_allocations,
            left_bytes: totals.left_bytes,
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
            left_allocations_error: totals.errors.left_allocations,
            left_bytes_error: totals.errors.left_bytes,
            peak_live_bytes_error: totals.errors.peak_live_bytes,
            temporary_allocations_error: totals.errors.temporary_allocations,
            mean_bytes: totals.errors.mean_bytes,
            allocations_unseen: totals.errors.unseen.allocations,
            allocated_bytes_unseen: totals.errors.unseen.allocated_bytes,
            frees_unseen: totals.errors.unseen.frees,
            freed_bytes_unseen: totals.errors.unseen.freed_bytes,
            live_allocations_unseen: totals.errors.unseen.live_allocations,
            live_bytes_unseen: totals.errors.unseen.live_bytes,
            left_allocations_unseen: totals.errors.unseen.left_allocations,
            left_bytes_unseen: totals.errors.unseen.left_bytes,
            peak_live_bytes_unseen: totals.errors.unseen.peak_live_bytes,
            temporary_allocations_unseen: totals.errors.unseen.temporary_allocations,
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
            left_allocations: counters.left_allocations,
            left_bytes: counters.left_bytes,
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
                left_allocations: counters.left_allocations_error,
                left_bytes: counters.left_bytes_error,
                peak_live_bytes: counters.peak_live_bytes_error,
                temporary_allocations: counters.temporary_allocations_error,
                unseen: Unseen {
                    allocations: counters.allocations_unseen,
                    allocated_bytes: counters.allocated_bytes_unseen,
                    frees: counters.frees_unseen,
                    freed_bytes: counters.freed_bytes_unseen,
                    live_allocations: counters.live_allocations_unseen,
                    live_bytes: counters.live_bytes_unseen,
                    left_allocations: counters.left_allocations_unseen,
                    left_bytes: counters.left_bytes_unseen,
                    peak_live_bytes: counters.peak_live_bytes_unseen,
                    temporary_allocations: counters.temporary_allocations_unseen,
                },
                mean_bytes: counters.mean_bytes,
            },
        }
    }
}
