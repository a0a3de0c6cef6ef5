//! How many rounds, how long, and which programs are measured.
//!
//! Part of bench.

/// How much is done.
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
