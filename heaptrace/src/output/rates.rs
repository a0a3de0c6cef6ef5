//! The periods of a run with their sampling rates.
//!
//! Stage: output. Must not know any format.

use std::collections::HashMap;

use crate::join::Process;
use crate::profile::Profile;

/// A period of a run with its sampling rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch<'a> {
    /// The begin, in nanoseconds since the start of the run.
    pub(super) from_ns: u64,
    /// The end, in nanoseconds since the start of the run.
    pub(super) to_ns: u64,
    /// The process with this rate; `None` for all processes without a rate of their own.
    pub(super) process: Option<&'a Process>,
    /// The mean number of bytes between samples.
    pub(super) mean_bytes: u64,
}

/// The periods and their sampling rates, in order of their begin; the first has the rate of the run. Empty if
/// every allocation was recorded.
pub(super) fn rates(profile: &Profile) -> Vec<Stretch<'_>> {
    let changes = profile.all_rates();
    // A rate lasts until the next change for the same process, so changes are visited backwards.
    let mut ends = HashMap::new();
    let mut stretches: Vec<_> = changes
        .iter()
        .rev()
        .map(|change| Stretch {
            from_ns: change.at_ns,
            to_ns: ends
                .insert(change.process, change.at_ns)
                .unwrap_or(profile.duration_ns),
            process: change
                .process
                .and_then(|id| profile.processes.get(id.0 as usize)),
            mean_bytes: change.mean_bytes,
        })
        .collect();
    stretches.reverse();
    stretches
}
