//! Decides when an update is sent at once: a process crashed or was killed, or its live memory exceeds a limit.
//!
//! Part of the session. Must not know how a process ended, nor what it holds.

use std::time::{Duration, Instant};

/// The least time between two updates for ends of processes: processes can crash without end.
const BETWEEN_ENDS: Duration = Duration::from_secs(1);

/// The least time between two marks for exceeded limits.
const BETWEEN_MARKS: Duration = Duration::from_millis(250);

/// The ends that no update was sent for, and the times of such updates.
#[derive(Debug, Default)]
pub(super) struct Moments {
    has_pending_end: bool,
    end: Option<Instant>,
    mark: Option<Instant>,
}

impl Moments {
    /// Whether an update must be sent now. `had_end`: whether a process ended suddenly since the last call. `mark_exceeded` makes a mark if a
    /// limit is exceeded, and returns whether it did.
    pub(super) fn is_due(
        &mut self,
        had_end: bool,
        mark_exceeded: impl FnOnce() -> bool,
        now: Instant,
    ) -> bool {
        self.has_pending_end |= had_end;
        let is_over = |last: Option<Instant>, time| {
            last.is_none_or(|last| now.saturating_duration_since(last) >= time)
        };
        let is_marked = is_over(self.mark, BETWEEN_MARKS) && mark_exceeded();
        if is_marked {
            self.mark = Some(now);
        }
        let is_ended = self.has_pending_end && is_over(self.end, BETWEEN_ENDS);
        if is_ended {
            self.has_pending_end = false;
            self.end = Some(now);
        }
        is_marked || is_ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tenths of a second, of four seconds, in which an update is due.
    fn due(had_end: impl Fn(u32) -> bool, is_exceeded: impl Fn(u32) -> bool) -> Vec<u32> {
        let begin = Instant::now();
        let mut moments = Moments::default();
        let tenths = 0..40;
        tenths
            .filter(|tenth| {
                let now = begin + Duration::from_millis(100) * *tenth;
                moments.is_due(had_end(*tenth), || is_exceeded(*tenth), now)
            })
            .collect()
    }

    /// Check that an end is due at once, that many ends are not due more than once a second, and that none is forgotten.
    #[test]
    fn ends_are_due_once_a_second() {
        let ends = due(|tenth| matches!(tenth, 3..=14 | 30), |_| false);
        assert_eq!(ends, [3, 13, 23, 33]);
    }

    /// Check that limits are looked at again some time after one was exceeded.
    #[test]
    fn limits_are_due_some_times_a_second() {
        let marks = due(|_| false, |tenth| matches!(tenth, 3..=7 | 9));
        assert_eq!(marks, [3, 6, 9]);
    }
}
