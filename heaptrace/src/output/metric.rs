//! What a report ranks by and a flame graph draws.
//!
//! Stage: output. Knows only the counters; how they are shown is each format's business.

use crate::join::Totals;
use crate::text;

/// One of the counters of [`Totals`], by its name on the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Metric {
    /// Bytes not freed.
    #[default]
    LiveBytes,
    /// Blocks not freed.
    LiveAllocations,
    /// Bytes allocated, freed or not.
    TotalBytes,
    /// Blocks allocated, freed or not.
    TotalAllocations,
    /// Bytes live when the run had most of them.
    PeakBytes,
    /// Blocks freed at once by the thread that allocated them.
    Temporary,
}

impl Metric {
    /// Every metric, in the order in which help texts name them.
    pub const ALL: [Self; 6] = [
        Self::LiveBytes,
        Self::LiveAllocations,
        Self::TotalBytes,
        Self::TotalAllocations,
        Self::PeakBytes,
        Self::Temporary,
    ];

    /// The name that `--metric` takes.
    pub fn name(self) -> &'static str {
        match self {
            Self::LiveBytes => "live-bytes",
            Self::LiveAllocations => "live-allocations",
            Self::TotalBytes => "total-bytes",
            Self::TotalAllocations => "total-allocations",
            Self::PeakBytes => "peak-bytes",
            Self::Temporary => "temporary",
        }
    }

    /// The metric of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.name() == name)
    }

    /// What it is, for a headline: `live bytes`.
    pub fn title(self) -> &'static str {
        match self {
            Self::LiveBytes => "live bytes",
            Self::LiveAllocations => "live allocations",
            Self::TotalBytes => "total bytes",
            Self::TotalAllocations => "total allocations",
            Self::PeakBytes => "bytes at peak",
            Self::Temporary => "temporary allocations",
        }
    }

    /// Its value.
    pub fn of(self, totals: &Totals) -> u64 {
        match self {
            Self::LiveBytes => totals.live_bytes,
            Self::LiveAllocations => totals.live_allocations,
            Self::TotalBytes => totals.allocated_bytes,
            Self::TotalAllocations => totals.allocations,
            Self::PeakBytes => totals.peak_live_bytes,
            Self::Temporary => totals.temporary_allocations,
        }
    }

    /// The standard error of its value.
    pub fn error(self, totals: &Totals) -> u64 {
        let errors = &totals.errors;
        match self {
            Self::LiveBytes => errors.live_bytes,
            Self::LiveAllocations => errors.live_allocations,
            Self::TotalBytes => errors.allocated_bytes,
            Self::TotalAllocations => errors.allocations,
            Self::PeakBytes => errors.peak_live_bytes,
            Self::Temporary => errors.temporary_allocations,
        }
    }

    /// Whether its value is more than chance may make it out of nothing: two standard errors.
    pub fn is_significant(self, totals: &Totals) -> bool {
        self.of(totals) >= self.error(totals).saturating_mul(2)
    }

    /// Whether it counts bytes, not blocks.
    pub fn is_bytes(self) -> bool {
        matches!(self, Self::LiveBytes | Self::TotalBytes | Self::PeakBytes)
    }

    /// A value of it as a person reads it.
    pub fn format(self, value: u64) -> String {
        if self.is_bytes() {
            text::bytes(value)
        } else {
            text::count(value)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::Errors;

    /// Check that names and metrics map one to one, and that each reads a counter of its own.
    #[test]
    fn names_and_values() {
        let totals = Totals {
            allocations: 1,
            allocated_bytes: 2,
            frees: 3,
            freed_bytes: 4,
            live_allocations: 5,
            live_bytes: 6,
            uncertain_allocations: 0,
            uncertain_bytes: 0,
            peak_live_bytes: 7,
            temporary_allocations: 8,
            errors: Errors::default(),
        };
        for metric in Metric::ALL {
            assert_eq!(Metric::from_name(metric.name()), Some(metric));
        }
        assert_eq!(Metric::from_name("bytes"), None);
        assert_eq!(Metric::ALL.map(|m| m.of(&totals)), [6, 5, 2, 1, 7, 8]);
    }
}
