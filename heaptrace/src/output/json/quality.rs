//! The quality of a report in JSON: what was lost, not traced, and what tracing used.
//!
//! Stage: output.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::join;
use crate::output::counters::non_zero;
use crate::output::report_input::ReportInput;

#[derive(Serialize)]
pub(super) struct Quality<'a> {
    samples: u64,
    lost: &'a BTreeMap<String, u64>,
    /// Absent if it can't be known.
    untracked_frees: Option<u64>,
    failed_allocations: u64,
    stacks_complete: u64,
    stacks_truncated: u64,
    stacks_broken: u64,
    frames_unsymbolized: u64,
    noted: &'a BTreeMap<String, u64>,
    unprobed: &'a BTreeSet<String>,
    without_tables: &'a BTreeSet<String>,
    unreadable: &'a BTreeSet<String>,
    short_lived: Vec<ShortLived<'a>>,
    kernel_map_bytes: u64,
    agent_cpu_ns: u64,
    agent_peak_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    probe_hit_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_overhead_percent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overhead_percent: Option<f64>,
}

/// Processes of a name and a control group that ended before they were traced.
#[derive(Serialize)]
struct ShortLived<'a> {
    command: &'a str,
    cgroup: &'a str,
    processes: u64,
    lived_ns: u64,
}

impl<'a> Quality<'a> {
    pub(super) fn new(input: &ReportInput<'a>) -> Self {
        let quality = &input.profile.quality;
        let overhead = &quality.overhead;
        Self {
            samples: quality.samples,
            lost: &quality.lost,
            untracked_frees: (!input.profile.info.is_partial()).then_some(quality.untracked_frees),
            failed_allocations: quality.failed_allocations,
            stacks_complete: quality.stacks_complete,
            stacks_truncated: quality.stacks_truncated,
            stacks_broken: quality.stacks_broken,
            frames_unsymbolized: input.unsymbolized(),
            noted: &quality.noted,
            unprobed: &quality.unprobed,
            without_tables: &quality.without_tables,
            unreadable: &quality.unreadable,
            short_lived: quality.short_lived.iter().map(ShortLived::new).collect(),
            kernel_map_bytes: quality.kernel_map_bytes,
            agent_cpu_ns: quality.agent_cpu_ns,
            agent_peak_bytes: quality.agent_peak_bytes,
            probe_hit_ns: non_zero(overhead.hit_ns),
            max_overhead_percent: non_zero(overhead.limit.into())
                .and(Some(f64::from(overhead.limit) / 100.0)),
            overhead_percent: overhead.percent(),
        }
    }
}

impl<'a> ShortLived<'a> {
    fn new(ended: &'a join::ShortLived) -> Self {
        Self {
            command: &ended.command,
            cgroup: &ended.cgroup,
            processes: ended.processes,
            lived_ns: ended.lived_ns,
        }
    }
}
