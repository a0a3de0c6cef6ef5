//! What the probes cost the traced processes.
//!
//! Stage: join. Pure. Must not know how it is measured.

/// What the probes cost the traced processes; all zero if it was not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// Cost of a probe hit on this machine, in nanoseconds.
    pub hit_ns: u64,
    /// The share of a process's processor time that may go into probes, in ten-thousandths; 0 for no limit.
    pub limit: u32,
    /// The time that all probe hits took, in nanoseconds.
    pub probes_ns: u64,
    /// The processor time of the processes that had probe hits, in nanoseconds; the hits are part of it.
    pub used_ns: u64,
}

impl Overhead {
    /// The share of the processor time that went into probes, in percent, if enough was measured to tell.
    pub fn percent(&self) -> Option<f64> {
        /// Less than some ticks of the governor's measurements say little.
        const LEAST_USED_NS: u64 = 100_000_000;
        let is_known = self.used_ns >= LEAST_USED_NS;
        is_known.then(|| self.probes_ns as f64 / self.used_ns as f64 * 100.0)
    }
}
