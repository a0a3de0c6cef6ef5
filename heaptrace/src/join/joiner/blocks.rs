//! Keeps each block, in runs that want that, and notes what found no room.
//!
//! Stage: join. The ledger does the work.

use std::cmp::Reverse;

use super::Joiner;
use crate::join::block_changes::BlockChanges;
use crate::join::block_log::BlockLog;
use crate::join::inspected::{Inspected, LiveBlock};
use crate::join::memory_map::{MappedPart, MemoryMap};
use crate::join::reasons::Note;
use crate::join::update::{ProcessId, Update};

/// Most parts of a process's mapped memory that are handed out.
const MAX_PARTS: usize = 1 << 16;

/// A program image that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningImage {
    /// The number that no other image of the run has.
    pub serial: u64,
    /// Its process id.
    pub pid: u32,
}

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

    /// The changes since the last call, and all live blocks of running processes, with what these changes have of their memory.
    pub fn take_update_with_blocks(&mut self, elapsed_ns: u64) -> Update {
        let mut update = self.take_update(elapsed_ns);
        let mut whole = self.ledger.live_blocks(elapsed_ns);
        for it in &mut whole {
            // They are in the order of the serial numbers.
            let place = update
                .blocks
                .binary_search_by_key(&it.owner.serial, |changes| changes.owner.serial);
            let changes = place.ok().and_then(|at| update.blocks.get(at));
            it.memory = changes.and_then(|it| it.memory.clone());
            it.inspected = changes.and_then(|it| it.inspected.clone());
        }
        if whole.is_empty() {
            // A file that begins without a block must say so, too: what was freed before is not in it.
            whole.push(BlockChanges {
                is_whole: true,
                at_ns: elapsed_ns,
                ..BlockChanges::default()
            });
        }
        update.live_blocks = Some(whole);
        update
    }

    /// The running processes with recorded blocks, those with most of them first.
    pub fn with_blocks(&self) -> Vec<RunningImage> {
        let running = self.ledger.processes().running_entries();
        let mut found: Vec<_> = running
            .map(|entry| (Reverse(entry.live_blocks()), entry))
            .filter(|it| it.0.0 > 0)
            .map(|(blocks, entry)| (blocks, entry.record().pid, entry.serial()))
            .collect();
        found.sort_unstable();
        let images = found.into_iter();
        images
            .map(|(_, pid, serial)| RunningImage { serial, pid })
            .collect()
    }

    /// At most so many live blocks of a running process, those that were allocated first; and how many more there are.
    pub fn live_blocks_of(&self, image: RunningImage, most: usize) -> (Vec<LiveBlock>, u64) {
        let Some(process) = self.running(image) else {
            return (Vec::new(), 0);
        };
        let mut blocks: Vec<_> = self.ledger.live_of(process).collect();
        let more = blocks.len().saturating_sub(most);
        if more > 0 {
            blocks.sort_unstable_by_key(|it| it.id);
            blocks.truncate(most);
        }
        (blocks, more as u64)
    }

    /// Adds what the memory of a process's live blocks tells of their types, if it runs on.
    pub fn set_inspected(&mut self, image: RunningImage, inspected: Inspected) {
        if let Some(process) = self.running(image) {
            self.ledger.log_inspected(process, inspected);
        }
    }

    /// The process of an image, if it runs on.
    pub(super) fn running(&self, image: RunningImage) -> Option<ProcessId> {
        let processes = self.ledger.processes();
        let process = processes.id(image.serial);
        process.filter(|it| processes.running(image.pid) == Some(*it))
    }

    /// Adds what of a process's memory is resident, if it runs on. Returns how many parts that it mapped found no room.
    pub fn set_memory(&mut self, image: RunningImage, mut map: MemoryMap) -> u64 {
        let Some(process) = self.running(image) else {
            return 0;
        };
        let mut mapped = self.mappings.of(process).filter_map(|(start, end, site)| {
            let stack = self.ledger.stack_of(site)?;
            Some(MappedPart { start, end, stack })
        });
        map.mapped = mapped.by_ref().take(MAX_PARTS).collect();
        map.mapped_left_out = mapped.count() as u64;
        let left_out = map.mapped_left_out;
        self.ledger.log_memory(process, map);
        left_out
    }
}
