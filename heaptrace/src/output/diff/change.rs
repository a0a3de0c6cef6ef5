//! The change of a number between two runs, and whether it can be chance.
//!
//! Stage: output. Knows neither names nor formats.

use crate::join::Totals;
use crate::output::interval::Intervals;
use crate::output::metric::Metric;

/// A number in two runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) old: u64,
    pub(super) new: u64,
    /// The range that holds the true change in 95 % of runs; `None` if both numbers are exact.
    pub(super) range: Option<(i128, i128)>,
}

/// What became of a stack or a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Grew,
    Shrank,
    /// It had nothing before.
    New,
    /// It has nothing any more.
    Gone,
    Same,
}

impl Fate {
    pub(super) const ALL: [Self; 5] = [Self::Grew, Self::Shrank, Self::New, Self::Gone, Self::Same];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Grew => "grew",
            Self::Shrank => "shrank",
            Self::New => "new",
            Self::Gone => "gone",
            Self::Same => "same",
        }
    }
}

impl Change {
    /// The change of a metric. The range follows from both intervals, which are independent of each other if the runs are (Newcombe's
    /// method).
    pub(super) fn of(
        metric: Metric,
        (old, of_old): (&Totals, &Intervals),
        (new, of_new): (&Totals, &Intervals),
    ) -> Self {
        let around_old = of_old.around(metric, old);
        let around_new = of_new.around(metric, new);
        let (old, new) = (metric.of(old), metric.of(new));
        let change = i128::from(new) - i128::from(old);
        let root = |a: u64, b: u64| (a as f64).hypot(b as f64).ceil() as i128;
        let range = (around_old.is_some() || around_new.is_some()).then(|| {
            let ends = |around: Option<crate::output::Interval>, value: u64| {
                let (low, high) = around.map_or((value, value), |it| (it.low, it.high));
                (value.saturating_sub(low), high.saturating_sub(value))
            };
            let (below_old, above_old) = ends(around_old, old);
            let (below_new, above_new) = ends(around_new, new);
            (
                change - root(below_new, above_old),
                change + root(above_new, below_old),
            )
        });
        Self { old, new, range }
    }

    /// The change itself.
    pub(super) fn value(&self) -> i128 {
        i128::from(self.new) - i128::from(self.old)
    }

    /// Whether there is a change that chance can explain.
    pub(super) fn is_noise(&self) -> bool {
        let can_be_none = self.range.is_some_and(|(low, high)| low <= 0 && high >= 0);
        self.value() != 0 && can_be_none
    }

    pub(super) fn fate(&self) -> Fate {
        match (self.old, self.new) {
            (old, new) if old == new => Fate::Same,
            (0, _) => Fate::New,
            (_, 0) => Fate::Gone,
            (old, new) if new > old => Fate::Grew,
            _ => Fate::Shrank,
        }
    }

    /// What is in both runs.
    pub(super) fn in_common(&self) -> u64 {
        self.old.min(self.new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::Errors;
    use crate::profile::{Mode, Profile, RunInfo};

    fn live(bytes: u64, error: u64) -> Totals {
        Totals {
            live_bytes: bytes,
            errors: Errors {
                live_bytes: error,
                unseen: crate::join::Unseen {
                    live_bytes: bytes,
                    ..Default::default()
                },
                mean_bytes: 1024,
                ..Errors::default()
            },
            ..Totals::default()
        }
    }

    /// Check that a change within the errors is noise, that a larger one is none, and that an exact change never is.
    #[test]
    fn noise_is_recognised() {
        let intervals = |mode| {
            let info = RunInfo {
                mode,
                ..RunInfo::exact("--pid 7")
            };
            Intervals::of(&Profile::new(info))
        };
        let sampled = intervals(Mode::Sampled { mean_bytes: 1024 });
        let exact = intervals(Mode::Exact);
        let change = |intervals: &Intervals, old: Totals, new: Totals| {
            Change::of(Metric::LiveBytes, (&old, intervals), (&new, intervals))
        };
        let large = change(&sampled, live(1_000_000, 30_000), live(2_000_000, 40_000));
        assert!(!large.is_noise() && large.fate() == Fate::Grew, "{large:?}");
        let small = change(&sampled, live(1_000_000, 30_000), live(1_050_000, 30_000));
        assert!(small.is_noise(), "{small:?}");
        // No sample at all is an estimate, too.
        let new = change(&sampled, live(0, 0), live(1_100, 1_100));
        assert!(new.is_noise() && new.fate() == Fate::New, "{new:?}");
        let exact = change(&exact, live(10, 0), live(9, 0));
        assert!(!exact.is_noise() && exact.range.is_none());
        assert_eq!(
            (exact.fate(), exact.value(), exact.in_common()),
            (Fate::Shrank, -1, 9)
        );
    }
}
