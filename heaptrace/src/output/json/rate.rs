//! Sampling rates, in a report for programs.
//!
//! Stage: output. Field names and their order are stable. Fields can be added, but never changed.

use serde::Serialize;

use crate::output::rates::Stretch;

/// A period with its sampling rate.
#[derive(Serialize)]
pub(super) struct Rate {
    from_ns: u64,
    to_ns: u64,
    /// Absent for the rate of all processes that have no rate of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    mean_bytes: u64,
}

impl Rate {
    pub(super) fn new(stretch: &Stretch<'_>) -> Self {
        Self {
            from_ns: stretch.from_ns,
            to_ns: stretch.to_ns,
            pid: stretch.process.map(|process| process.pid),
            mean_bytes: stretch.mean_bytes,
        }
    }
}
