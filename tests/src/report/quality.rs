//! The quality of a report: what was lost, not traced, and what tracing used.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Quality of the record.
#[derive(Clone, Debug, Deserialize)]
#[expect(
    missing_docs,
    reason = "the names are those of the format, explained in its documentation"
)]
pub struct Quality {
    pub samples: u64,
    pub lost: BTreeMap<String, u64>,
    pub without_tables: Vec<String>,
    #[serde(default)]
    pub unreadable: Vec<String>,
    pub unprobed: Vec<String>,
    #[serde(default)]
    pub short_lived: Vec<ShortLived>,
    /// 0 also if it can't be known.
    #[serde(deserialize_with = "null_is_zero")]
    pub untracked_frees: u64,
    pub failed_allocations: u64,
    pub stacks_complete: u64,
    pub stacks_truncated: u64,
    pub stacks_broken: u64,
    pub frames_unsymbolized: u64,
    pub noted: BTreeMap<String, u64>,
    pub kernel_map_bytes: u64,
    pub agent_cpu_ns: u64,
    pub agent_peak_bytes: u64,
    #[serde(default)]
    pub probe_hit_ns: u64,
    #[serde(default)]
    pub overhead_percent: f64,
}

/// Processes of a name and a control group that ended before they were traced.
#[derive(Clone, Debug, Deserialize)]
pub struct ShortLived {
    pub command: String,
    pub cgroup: String,
    pub processes: u64,
    pub lived_ns: u64,
}

fn null_is_zero<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(0))
}
