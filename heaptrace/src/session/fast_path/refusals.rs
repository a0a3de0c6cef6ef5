//! Programs of processes that could not be moved: when they are tried again, and which of them are reported.
//!
//! Part of the session. Pure: must not know the reasons, nor what time it is.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// A program that starts may lack its libraries, or its slots may have no addresses yet. So it is reported only after so many
/// refusals.
const REPORTED: u32 = 5;

/// The time after the first refusal. It doubles with each.
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// The longest time until a program is tried again.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Most programs that are remembered.
const MOST: usize = 1 << 16;

/// The refused programs of a run. One that a process starts later is another one, about which nothing is known.
#[derive(Debug)]
pub(super) struct Refusals<Image> {
    all: HashMap<Image, Refused>,
    reported: u64,
}

#[derive(Debug)]
struct Refused {
    times: u32,
    again: Duration,
}

impl<Image: Eq + Hash> Refusals<Image> {
    pub(super) fn new() -> Self {
        Self {
            all: HashMap::new(),
            reported: 0,
        }
    }

    /// Whether a program may be tried now.
    pub(super) fn allow(&self, image: &Image, now: Duration) -> bool {
        self.all.get(image).is_none_or(|it| now >= it.again)
    }

    /// Remembers a refusal. Returns whether it must be reported, which it must be once for a program.
    pub(super) fn add(&mut self, image: Image, now: Duration) -> bool {
        if self.all.len() >= MOST {
            self.all.clear();
        }
        let refused = self.all.entry(image).or_insert(Refused {
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

    /// Forgets a program that was moved after all.
    pub(super) fn forget(&mut self, image: &Image) {
        if let Some(refused) = self.all.remove(image)
            && refused.times >= REPORTED
        {
            self.reported -= 1;
        }
    }

    /// How many programs were reported, and not moved later.
    pub(super) fn reported(&self) -> u64 {
        self.reported
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a refused program is tried again, ever more seldom, and is reported once, unless it is moved in the end.
    #[test]
    fn refusals_are_repeated() {
        let mut refusals = Refusals::new();
        let (image, mut now) = (2, Duration::ZERO);
        let mut reports = 0;
        for round in 0..20 {
            assert!(refusals.allow(&image, now), "{round}");
            reports += u32::from(refusals.add(image, now));
            assert!(!refusals.allow(&image, now + FIRST_WAIT / 2));
            assert!(refusals.allow(&3, now), "another program");
            now += (FIRST_WAIT * 2_u32.pow(round)).min(LONGEST_WAIT);
        }
        assert_eq!((reports, refusals.reported()), (1, 1));
        refusals.forget(&image);
        assert_eq!(refusals.reported(), 0);
        assert!(refusals.allow(&image, now));
        assert!(!refusals.add(image, now));
        refusals.forget(&image);
        assert_eq!(refusals.reported(), 0);
    }
}
