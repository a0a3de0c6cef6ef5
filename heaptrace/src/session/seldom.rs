//! When something is due that is done seldom, because it takes a while.
//!
//! Part of the session. Must not know what is done.

use std::time::{Duration, Instant};

/// The shortest time between two times.
const SELDOM: Duration = Duration::from_secs(10);

/// In between is so many times what the last one took.
const SHARE: u32 = 100;

/// Something that is done seldom.
#[derive(Debug, Default)]
pub(super) struct Seldom {
    /// When it was last done, and how long it took.
    last: Option<(Instant, Duration)>,
}

impl Seldom {
    /// Whether it was done long ago, or not yet.
    pub(super) fn is_due(&self) -> bool {
        self.last
            .is_none_or(|(end, took)| end.elapsed() >= SELDOM.max(took * SHARE))
    }

    /// It has been done, and was begun then.
    pub(super) fn done(&mut self, begun: Instant) {
        self.last = Some((Instant::now(), begun.elapsed()));
    }
}
