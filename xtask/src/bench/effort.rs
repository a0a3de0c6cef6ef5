//! The number of rounds, their length, and the filter of programs.
//!
//! Part of bench.

/// The effort of a measurement.
pub(super) struct Effort {
    pub(super) rounds: u32,
    pub(super) seconds: f64,
    pub(super) filter: Option<String>,
}

impl Effort {
    pub(super) fn wants(&self, name: &str) -> bool {
        let filter = self.filter.as_deref();
        filter.is_none_or(|filter| name.contains(filter))
    }
}
