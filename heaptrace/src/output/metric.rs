//! The metrics that sites are ranked by and flame graphs show.
//!
//! Stage: output. Each format decides how to show them.

use crate::join::Totals;
use crate::profile::Profile;
use crate::text;

/// One of the counters of [`Totals`], with its name on the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Metric {
    /// Bytes not freed.
    #[default]
    LiveBytes,
    /// Blocks not freed.
    LiveAllocations,
    /// Bytes that processes had not freed when they ended.
    LeftBytes,
    /// Blocks that processes had not freed when they ended.
    LeftAllocations,
    /// Bytes allocated, freed or not.
    TotalBytes,
    /// Blocks allocated, freed or not.
    TotalAllocations,
    /// Bytes that were live at the run's peak.
    PeakBytes,
    /// Blocks that the allocating thread freed at once.
    Temporary,
}

impl Metric {
    /// Every metric, in the order of the help texts.
    pub const ALL: [Self; 8] = [
        Self::LiveBytes,
        Self::LiveAllocations,
        Self::LeftBytes,
        Self::LeftAllocations,
        Self::TotalBytes,
        Self::TotalAllocations,
        Self::PeakBytes,
        Self::Temporary,
    ];

    /// The metrics that are known at each snapshot, for each site.
    pub const OF_SNAPSHOTS: [Self; 4] = [
        Self::LiveBytes,
        Self::LiveAllocations,
        Self::TotalBytes,
        Self::TotalAllocations,
    ];

    /// The metric for a profile if the user chose none: what is live, or, once every process has ended, what
    /// they left; if they left nothing, what was live at the peak.
    pub fn usual(profile: &Profile) -> Self {
        match Self::unfreed(profile) {
            // What was allocated since a mark has no peak.
            Self::LeftBytes if profile.totals.left_bytes == 0 => {
                if profile.totals.peak_live_bytes > 0 {
                    Self::PeakBytes
                } else {
                    Self::TotalBytes
                }
            }
            metric => metric,
        }
    }

    /// What is live, or, once every process has ended, what they left.
    pub fn unfreed(profile: &Profile) -> Self {
        let mut processes = profile.processes.iter().peekable();
        if processes.peek().is_none() || processes.any(|it| !it.ended) {
            Self::LiveBytes
        } else {
            Self::LeftBytes
        }
    }

    /// The name for `--metric`.
    pub fn name(self) -> &'static str {
        match self {
            Self::LiveBytes => "live-bytes",
            Self::LiveAllocations => "live-allocations",
            Self::LeftBytes => "left-bytes",
            Self::LeftAllocations => "left-allocations",
            Self::TotalBytes => "total-bytes",
            Self::TotalAllocations => "total-allocations",
            Self::PeakBytes => "peak-bytes",
            Self::Temporary => "temporary",
        }
    }

    /// The metric with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.name() == name)
    }

    /// The name for a heading: `live bytes`.
    pub fn title(self) -> &'static str {
        match self {
            Self::LiveBytes => "live bytes",
            Self::LiveAllocations => "live allocations",
            Self::LeftBytes => "bytes left at exit",
            Self::LeftAllocations => "allocations left at exit",
            Self::TotalBytes => "total bytes",
            Self::TotalAllocations => "total allocations",
            Self::PeakBytes => "bytes at peak",
            Self::Temporary => "temporary allocations",
        }
    }

    /// The counter's value.
    pub fn of(self, totals: &Totals) -> u64 {
        match self {
            Self::LiveBytes => totals.live_bytes,
            Self::LiveAllocations => totals.live_allocations,
            Self::LeftBytes => totals.left_bytes,
            Self::LeftAllocations => totals.left_allocations,
            Self::TotalBytes => totals.allocated_bytes,
            Self::TotalAllocations => totals.allocations,
            Self::PeakBytes => totals.peak_live_bytes,
            Self::Temporary => totals.temporary_allocations,
        }
    }

    /// What may come on top of the value: memory that was live before its process was paused, and that may
    /// have been freed during the pause.
    pub fn uncertain(self, totals: &Totals) -> u64 {
        match self {
            Self::LiveBytes => totals.uncertain_bytes,
            Self::LiveAllocations => totals.uncertain_allocations,
            Self::LeftBytes
            | Self::LeftAllocations
            | Self::TotalBytes
            | Self::TotalAllocations
            | Self::PeakBytes
            | Self::Temporary => 0,
        }
    }

    /// The most that the counter may be. Rows are ranked by it, so that a process whose live memory is all
    /// uncertain is not missing.
    pub fn rank(self, totals: &Totals) -> u64 {
        self.of(totals).saturating_add(self.uncertain(totals))
    }

    /// The standard error of the value.
    pub fn error(self, totals: &Totals) -> u64 {
        let errors = &totals.errors;
        match self {
            Self::LiveBytes => errors.live_bytes,
            Self::LiveAllocations => errors.live_allocations,
            Self::LeftBytes => errors.left_bytes,
            Self::LeftAllocations => errors.left_allocations,
            Self::TotalBytes => errors.allocated_bytes,
            Self::TotalAllocations => errors.allocations,
            Self::PeakBytes => errors.peak_live_bytes,
            Self::Temporary => errors.temporary_allocations,
        }
    }

    /// Whether the value is at least two standard errors, so that chance can hardly explain it.
    pub fn is_significant(self, totals: &Totals) -> bool {
        self.of(totals) >= self.error(totals).saturating_mul(2)
    }

    /// Whether it is what is live, and so falls, too.
    pub(super) fn is_live(self) -> bool {
        matches!(self, Self::LiveBytes | Self::LiveAllocations)
    }

    /// Whether the metric counts bytes, not blocks.
    pub fn is_bytes(self) -> bool {
        matches!(
            self,
            Self::LiveBytes | Self::LeftBytes | Self::TotalBytes | Self::PeakBytes
        )
    }

    /// Formats a value for people.
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

    /// Check that names and metrics map one to one, and that each metric reads its own counter.
    #[test]
    fn names_and_values() {
        let totals = Totals {
            allocations: 1,
            allocated_bytes: 2,
            frees: 3,
            freed_bytes: 4,
            live_allocations: 5,
            live_bytes: 6,
            left_allocations: 9,
            left_bytes: 10,
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
        assert_eq!(
            Metric::ALL.map(|m| m.of(&totals)),
            [6, 5, 10, 9, 2, 1, 7, 8]
        );
    }
}
