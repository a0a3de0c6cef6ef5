//! From when to when processes were traced, in a run that reaches them one by one.
//!
//! Stage: join. Plain values.

/// From when to when a process was traced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traced {
    /// When the probes reached it, nanoseconds since the run began.
    pub from_ns: u64,
    /// For how long it had run by then; 0 for a program that was traced from its first instruction on.
    pub age_ns: u64,
    /// When it ended, nanoseconds since the run began; `None` if it has not.
    pub to_ns: Option<u64>,
}

/// Processes of one name and one control group that ended before the probes reached them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShortLived {
    /// Their name; raw, to be escaped by every output.
    pub command: String,
    /// The path of their control group, empty if unknown.
    pub cgroup: String,
    /// How many there were.
    pub processes: u64,
    /// The sum of the times for which they ran, in nanoseconds.
    pub lived_ns: u64,
}
