//! Processes that could not be moved: when they are tried again, and which of them are reported.
//!
//! Part of the session. Pure: must not know the reasons, nor what time it is.

use std::collections::HashMap;
use std::time::Duration;

/// A process that starts may lack its libraries, or its slots may have no addresses yet. So it is reported only after so many
/// refusals.
const REPORTED: u32 = 5;

/// The time after the first refusal. It doubles with each.
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// The longest time until a process is tried again.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Most processes that are remembered.
const MOST: usize = 1 << 16;

/// The refused processes of a run, by process id and start time.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    all: HashMap<(u32, u64), Refused>,
    reported: u64,
}

#[derive(Debug)]
struct Refused {
    times: u32,
    again: Duration,
}

impl Refusals {
    /// Whether a process may be tried now.
    pub(super) fn allow(&self, process: (u32, u64), now: Duration) -> bool {
        self.all.get(&process).is_none_or(|it| now >= it.again)
    }

    /// Remembers a refusal. Returns whether it must be reported, which it must be once for a process.
    pub(super) fn add(&mut self, process: (u32, u64), now: Duration) -> bool {
        if self.all.len() >= MOST {
            self.all.clear();
        }
        let refused = self.all.entry(process).or_insert(Refused {
            times: 0,
            again: now,
        });
        let wait = FIRST_WAIT.saturating_mul(1 << refused.times.min(16));
        refused.again = now + wait.min(LONGEST_WAIT);
        refused.times += 1;
        let is_reported = refused.times == REPORTED;
        self.reported += u64::from(is_reported);
        is_reported
    }

    /// Forgets a process that was moved after all.
    pub(super) fn forget(&mut self, process: (u32, u64)) {
        if let Some(refused) = self.all.remove(&process)
            && refused.times >= REPORTED
        {
            self.reported -= 1;
        }
    }

    /// How many processes were reported, and not moved later.
    pub(super) fn reported(&self) -> u64 {
        self.reported
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a refused process is tried again, ever more seldom, and is reported once, unless it is moved in the end.
    #[test]
    fn refusals_are_repeated() {
        let mut refusals = Refusals::default();
        let (process, mut now) = ((1, 2), Duration::ZERO);
        let mut reports = 0;
        for round in 0..20 {
            assert!(refusals.allow(process, now), "{round}");
            reports += u32::from(refusals.add(process, now));
            assert!(!refusals.allow(process, now + FIRST_WAIT / 2));
            assert!(refusals.allow((1, 3), now), "another process with this id");
            now += (FIRST_WAIT * 2_u32.pow(round)).min(LONGEST_WAIT);
        }
        assert_eq!((reports, refusals.reported()), (1, 1));
        refusals.forget(process);
        assert_eq!(refusals.reported(), 0);
        assert!(refusals.allow(process, now));
        assert!(!refusals.add(process, now));
        refusals.forget(process);
        assert_eq!(refusals.reported(), 0);
    }
}
