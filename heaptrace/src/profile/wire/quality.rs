//! The quality of a run: what was lost, not traced, and what tracing used.
//!
//! Stage: profile.

use std::collections::BTreeMap;

use prost::Message;

use super::traced::ShortLived;
use crate::join::{Overhead, Quality};

#[derive(Clone, PartialEq, Message)]
pub(super) struct QualityMessage {
    #[prost(uint64, tag = "1")]
    samples: u64,
    #[prost(btree_map = "string, uint64", tag = "2")]
    lost: BTreeMap<String, u64>,
    #[prost(btree_map = "string, uint64", tag = "9")]
    noted: BTreeMap<String, u64>,
    #[prost(string, repeated, tag = "10")]
    unprobed: Vec<String>,
    #[prost(string, repeated, tag = "11")]
    without_tables: Vec<String>,
    #[prost(string, repeated, tag = "22")]
    unreadable: Vec<String>,
    #[prost(uint64, tag = "3")]
    untracked_frees: u64,
    #[prost(uint64, tag = "4")]
    failed_allocations: u64,
    #[prost(uint64, tag = "5")]
    stacks_complete: u64,
    #[prost(uint64, tag = "6")]
    stacks_truncated: u64,
    #[prost(uint64, tag = "7")]
    stacks_broken: u64,
    #[prost(uint64, tag = "8")]
    kernel_map_bytes: u64,
    #[prost(uint64, tag = "12")]
    agent_cpu_ns: u64,
    #[prost(uint64, tag = "13")]
    agent_peak_bytes: u64,
    #[prost(uint64, tag = "20")]
    hit_ns: u64,
    #[prost(uint32, tag = "21")]
    max_overhead: u32,
    #[prost(uint64, tag = "23")]
    probes_ns: u64,
    #[prost(uint64, tag = "24")]
    used_ns: u64,
    #[prost(message, repeated, tag = "25")]
    short_lived: Vec<ShortLived>,
}

impl From<&Quality> for QualityMessage {
    fn from(quality: &Quality) -> Self {
        Self {
            samples: quality.samples,
            lost: quality.lost.clone(),
            noted: quality.noted.clone(),
            unprobed: quality.unprobed.iter().cloned().collect(),
            without_tables: quality.without_tables.iter().cloned().collect(),
            unreadable: quality.unreadable.iter().cloned().collect(),
            short_lived: quality.short_lived.iter().map(Into::into).collect(),
            untracked_frees: quality.untracked_frees,
            failed_allocations: quality.failed_allocations,
            stacks_complete: quality.stacks_complete,
            stacks_truncated: quality.stacks_truncated,
            stacks_broken: quality.stacks_broken,
            kernel_map_bytes: quality.kernel_map_bytes,
            agent_cpu_ns: quality.agent_cpu_ns,
            agent_peak_bytes: quality.agent_peak_bytes,
            hit_ns: quality.overhead.hit_ns,
            max_overhead: quality.overhead.limit,
            probes_ns: quality.overhead.probes_ns,
            used_ns: quality.overhead.used_ns,
        }
    }
}

impl From<QualityMessage> for Quality {
    fn from(quality: QualityMessage) -> Self {
        Self {
            samples: quality.samples,
            lost: quality.lost,
            noted: quality.noted,
            unprobed: quality.unprobed.into_iter().collect(),
            without_tables: quality.without_tables.into_iter().collect(),
            unreadable: quality.unreadable.into_iter().collect(),
            short_lived: quality.short_lived.into_iter().map(Into::into).collect(),
            untracked_frees: quality.untracked_frees,
            failed_allocations: quality.failed_allocations,
            stacks_complete: quality.stacks_complete,
            stacks_truncated: quality.stacks_truncated,
            stacks_broken: quality.stacks_broken,
            kernel_map_bytes: quality.kernel_map_bytes,
            agent_cpu_ns: quality.agent_cpu_ns,
            agent_peak_bytes: quality.agent_peak_bytes,
            overhead: Overhead {
                hit_ns: quality.hit_ns,
                limit: quality.max_overhead,
                probes_ns: quality.probes_ns,
                used_ns: quality.used_ns,
            },
        }
    }
}
