//! Limits of live memory: the mark that is made when one is exceeded.
//!
//! Stage: join. Must not know when limits are looked at.

use super::Joiner;
use crate::config::LiveLimit;
use crate::join::live_limits::LiveLimits;
use crate::join::marks::{Exceeded, MarkCause};
use crate::join::reasons::Note;

/// Most exceeded limits that a run lists.
const MOST_LISTED: usize = 4096;

impl Joiner {
    /// Limits the live memory of each process or control group.
    pub fn limit_live(&mut self, limit: LiveLimit) {
        self.live_limits = Some(LiveLimits::new(limit));
    }

    /// Makes a mark if a limit is exceeded. Returns whether one was made.
    pub fn mark_exceeded(&mut self, at_ns: u64, time: u64) -> bool {
        let Some(limits) = &mut self.live_limits else {
            return false;
        };
        let mut exceeded = limits.exceeded(self.ledger.processes().live());
        if exceeded.is_empty() {
            return false;
        }
        let before = self.ledger.generations().last_mark();
        self.ledger.mark(MarkCause::Exceeded, at_ns, time);
        let last = self.ledger.generations().last_mark();
        // Without room, none is made.
        let mark = if last > before { last } else { 0 };
        for it in &mut exceeded {
            (it.mark, it.at_ns) = (mark, at_ns);
        }
        let room = MOST_LISTED.saturating_sub(self.listed_exceeded);
        let left_out = exceeded.len().saturating_sub(room);
        exceeded.truncate(room);
        self.listed_exceeded += exceeded.len();
        self.exceeded.append(&mut exceeded);
        for _ in 0..left_out {
            self.facts.note_one(Note::ExceededUnlisted);
        }
        true
    }

    /// The limits that were exceeded since the last call.
    pub(super) fn take_exceeded(&mut self) -> Vec<Exceeded> {
        std::mem::take(&mut self.exceeded)
    }
}
