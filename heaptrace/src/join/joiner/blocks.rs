//! Keeps each block, in runs that want that, and notes what found no room.
//!
//! Stage: join. The ledger does the work.

use super::Joiner;
use crate::join::block_log::BlockLog;
use crate::join::reasons::Note;

impl Joiner {
    /// Hands out each block with the updates, from now on. The run began at this time of the monotonic clock. If not all are
    /// wanted, blocks that are freed before the next update are left out.
    pub fn log_blocks(&mut self, began: u64, has_all: bool) {
        self.ledger.log_blocks(BlockLog::new(began, has_all));
    }

    /// Whether so many blocks wait for the next update that it should come soon.
    pub fn needs_update(&self) -> bool {
        self.ledger.block_log().is_some_and(BlockLog::is_due)
    }

    /// Notes what was left out for lack of room.
    pub(super) fn note_without_room(&mut self) {
        let marks = self.ledger.generations().without_room();
        self.facts.set_noted(Note::MarksWithoutRoom, marks);
        if let Some(log) = self.ledger.block_log() {
            self.facts
                .set_noted(Note::BlocksNotKept, log.without_room());
        }
    }
}
