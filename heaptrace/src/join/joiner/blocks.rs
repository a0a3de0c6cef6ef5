//! Keeps each block, in runs that want that, and notes what found no room.
//!
//! Stage: join. The ledger does the work.

use std::cmp::Reverse;

use super::Joiner;
use crate::join::block_log::BlockLog;
use crate::join::memory_map::{MappedPart, MemoryMap};
use crate::join::reasons::Note;

/// Most parts of a process's mapped memory that are handed out.
const MAX_PARTS: usize = 1 << 16;

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

    /// The process ids of at most so many running processes with recorded blocks, those with most of them first.
    pub fn with_blocks(&self, most: usize) -> Vec<u32> {
        let running = self.ledger.processes().running_entries();
        let mut found: Vec<_> = running
            .map(|entry| (Reverse(entry.live_blocks()), entry.record().pid))
            .filter(|it| it.0.0 > 0)
            .collect();
        found.sort_unstable();
        found.into_iter().map(|it| it.1).take(most).collect()
    }

    /// Adds what of a process's memory is resident.
    pub fn set_memory(&mut self, pid: u32, mut map: MemoryMap) {
        let Some(process) = self.ledger.processes().running(pid) else {
            return;
        };
        let mapped = self.mappings.of(process).filter_map(|(start, end, site)| {
            let stack = self.ledger.stack_of(site)?;
            Some(MappedPart { start, end, stack })
        });
        map.mapped = mapped.take(MAX_PARTS).collect();
        self.ledger.log_memory(process, map);
    }
}
