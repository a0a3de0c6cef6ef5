//! Collects the blocks that are allocated and freed between two updates, for runs that keep each block.
//!
//! Stage: join. Blocks that live longer than the time between two updates are few, also in programs that allocate a lot, so
//! blocks that are freed before the next update are left out, unless all are wanted. Knows nothing of sums.

use std::mem::size_of;

use super::block_changes::{BlockChanges, BlockOwner, BornBlock, FreedBlock, HowFreed};
use super::blocks::Block;
use super::inspected::Inspected;
use super::keyed_hash::HashMap;
use super::memory_map::MemoryMap;
use super::process::ProcessEntry;
use super::update::{SiteId, StackId};
use super::usage_sums::Freeing;

/// An update is due when so many entries wait for it, so that memory stays small.
const DUE: usize = 1 << 18;

/// Most entries that wait for an update. Frees are kept beyond it: without them, blocks would seem to live.
const MOST: usize = 1 << 22;

/// The blocks of all processes that were allocated and freed since the last update.
#[derive(Debug)]
pub(super) struct BlockLog {
    /// When the run began, on the monotonic clock.
    began: u64,
    /// Whether blocks that are freed before the next update are kept.
    has_all: bool,
    /// By the serial number of the process.
    pending: HashMap<u64, Pending>,
    /// Entries of all processes.
    waiting: usize,
    /// Allocated blocks that were left out for lack of room.
    without_room: u64,
}

#[derive(Debug, Default)]
struct Pending {
    owner: BlockOwner,
    born: HashMap<u64, Born>,
    freed: Vec<FreedBlock>,
    ended_ns: Option<u64>,
    memory: Option<MemoryMap>,
    inspected: Option<Inspected>,
}

#[derive(Clone, Copy, Debug)]
struct Born {
    block: Block,
    /// Its stack, if its site may have become another one's since.
    stack: Option<StackId>,
}

impl BlockLog {
    /// A log of a run that began at this time of the monotonic clock.
    pub(super) fn new(began: u64, has_all: bool) -> Self {
        Self {
            began,
            has_all,
            pending: HashMap::default(),
            waiting: 0,
            without_room: 0,
        }
    }

    /// Adds an allocated block.
    pub(super) fn born(&mut self, process: &ProcessEntry, id: u64, block: Block) {
        if self.waiting >= MOST {
            self.without_room += 1;
            return;
        }
        let born = Born { block, stack: None };
        self.waiting += 1;
        self.of(process).born.insert(id, born);
    }

    /// Adds the end of a block, if its allocation was recorded.
    pub(super) fn freed(&mut self, process: &ProcessEntry, id: u64, by: Option<Freeing>) {
        let has_all = self.has_all;
        let began = self.began;
        let pending = self.of(process);
        if !has_all && pending.born.remove(&id).is_some() {
            self.waiting = self.waiting.saturating_sub(1);
            return;
        }
        pending.freed.push(FreedBlock {
            id,
            how: by.map_or(HowFreed::Unseen, |by| by.how()),
            freed_ns: by.map_or(0, |by| by.time.saturating_sub(began)),
            thread: by.map_or(0, |by| by.tid),
        });
        self.waiting += 1;
    }

    /// Adds the end of a process, at a time of the monotonic clock.
    pub(super) fn ended(&mut self, process: &ProcessEntry, time: u64) {
        let ended_ns = time.saturating_sub(self.began);
        self.of(process).ended_ns = Some(ended_ns);
    }

    /// Adds what of a process's memory is resident.
    pub(super) fn set_memory(&mut self, process: &ProcessEntry, map: MemoryMap) {
        self.of(process).memory = Some(map);
    }

    /// Adds what the memory of a process's live blocks tells.
    pub(super) fn set_inspected(&mut self, process: &ProcessEntry, inspected: Inspected) {
        self.of(process).inspected = Some(inspected);
    }

    /// Looks up the stacks of a process's blocks now: it is about to be merged with others, and its sites with theirs.
    pub(super) fn close(
        &mut self,
        process: &ProcessEntry,
        stack: impl Fn(SiteId) -> Option<StackId>,
    ) {
        if let Some(pending) = self.pending.get_mut(&process.serial()) {
            for born in pending.born.values_mut() {
                born.stack = born.stack.or_else(|| stack(born.block.site));
            }
        }
    }

    /// Whether so much waits that an update is due.
    pub(super) fn is_due(&self) -> bool {
        self.waiting >= DUE
    }

    /// Allocated blocks that were left out for lack of room.
    pub(super) fn without_room(&self) -> u64 {
        self.without_room
    }

    /// Everything since the last call, in the order of the serial numbers.
    pub(super) fn take(
        &mut self,
        at_ns: u64,
        stack: impl Fn(SiteId) -> Option<StackId>,
    ) -> Vec<BlockChanges> {
        self.waiting = 0;
        let mut pending: Vec<_> = std::mem::take(&mut self.pending).into_values().collect();
        pending.sort_unstable_by_key(|it| it.owner.serial);
        let has_all = self.has_all;
        let changes = pending.into_iter().map(|pending| {
            let born = pending.born.into_iter();
            let mut born: Vec<_> = born
                .filter_map(|(id, born)| {
                    let stack = born.stack.or_else(|| stack(born.block.site))?;
                    Some(born_block(id, &born.block, stack, self.began))
                })
                .collect();
            born.sort_unstable_by_key(|it| (it.born_ns, it.id));
            BlockChanges {
                owner: pending.owner,
                is_whole: false,
                at_ns,
                has_all,
                born,
                freed: pending.freed,
                ended_ns: pending.ended_ns,
                memory: pending.memory,
                inspected: pending.inspected,
            }
        });
        changes.collect()
    }

    /// All live blocks of a process.
    pub(super) fn whole(
        &self,
        process: &ProcessEntry,
        at_ns: u64,
        stack: impl Fn(SiteId) -> Option<StackId>,
    ) -> BlockChanges {
        let blocks = process.blocks().filter_map(|(id, block)| {
            let stack = stack(block.site)?;
            Some(born_block(id, &block, stack, self.began))
        });
        let mut born: Vec<_> = blocks.collect();
        born.sort_unstable_by_key(|it| (it.born_ns, it.id));
        BlockChanges {
            owner: owner(process),
            is_whole: true,
            at_ns,
            has_all: self.has_all,
            born,
            ..BlockChanges::default()
        }
    }

    fn of(&mut self, process: &ProcessEntry) -> &mut Pending {
        let pending = self.pending.entry(process.serial());
        pending.or_insert_with(|| Pending {
            owner: owner(process),
            ..Pending::default()
        })
    }
}

fn owner(process: &ProcessEntry) -> BlockOwner {
    let record = process.record();
    BlockOwner {
        serial: process.serial(),
        pid: record.pid,
        start_time_ns: record.start_time_ns,
        command: record.command.clone(),
    }
}

/// A block of a run that began at a time of the monotonic clock.
fn born_block(id: u64, block: &Block, stack: StackId, began: u64) -> BornBlock {
    BornBlock {
        id,
        address: block.address,
        size: block.size,
        stack,
        thread: block.tid,
        born_ns: block.time.saturating_sub(began),
        mean: if block.mean > 1 { block.mean } else { 0 },
        is_reallocated: block.is_reallocated,
    }
}

// What waits for an update that is due needs some 30 MB.
const _: () = assert!(size_of::<(u64, Born)>() <= 96 && size_of::<FreedBlock>() <= 32);
