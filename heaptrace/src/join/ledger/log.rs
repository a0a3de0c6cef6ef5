//! Keeps blocks one by one, and what of the memory beside them is resident, in runs that want that.
//!
//! Stage: join.

use super::Ledger;
use crate::join::block_changes::BlockChanges;
use crate::join::block_log::BlockLog;
use crate::join::inspected::{Inspected, LiveBlock};
use crate::join::memory_map::MemoryMap;
use crate::join::process::ProcessEntry;
use crate::join::update::{ProcessId, SiteId, StackId};

impl Ledger {
    /// Keeps each block, from now on.
    pub(in crate::join) fn log_blocks(&mut self, log: BlockLog) {
        self.log = Some(log);
    }

    /// Adds what of a process's memory is resident to the next block changes, if blocks are kept.
    pub(in crate::join) fn log_memory(&mut self, process: ProcessId, map: MemoryMap) {
        if let (Some(log), Some(entry)) = (&mut self.log, self.processes.get(process)) {
            log.set_memory(entry, map);
        }
    }

    /// Adds what the memory of a process's live blocks tells to the next block changes, if blocks are kept.
    pub(in crate::join) fn log_inspected(&mut self, process: ProcessId, inspected: Inspected) {
        if let (Some(log), Some(entry)) = (&mut self.log, self.processes.get(process)) {
            log.set_inspected(entry, inspected);
        }
    }

    /// The live blocks of a process.
    pub(in crate::join) fn live_of(
        &self,
        process: ProcessId,
    ) -> impl Iterator<Item = LiveBlock> + '_ {
        let entry = self.processes.get(process);
        let blocks = entry.into_iter().flat_map(ProcessEntry::blocks);
        blocks.filter_map(|(id, block)| {
            Some(LiveBlock {
                id,
                address: block.address,
                size: block.size,
                stack: self.sites.stack(block.site)?,
            })
        })
    }

    /// The stack of a site.
    pub(in crate::join) fn stack_of(&self, site: SiteId) -> Option<StackId> {
        self.sites.stack(site)
    }

    /// The log of blocks, to be read.
    pub(in crate::join) fn block_log(&self) -> Option<&BlockLog> {
        self.log.as_ref()
    }

    /// All live blocks of running processes, if blocks are wanted.
    pub(in crate::join) fn live_blocks(&self, at_ns: u64) -> Vec<BlockChanges> {
        let Some(log) = &self.log else {
            return Vec::new();
        };
        let running = self.processes.running_entries();
        let mut running: Vec<_> = running.filter(|it| it.live_blocks() > 0).collect();
        running.sort_unstable_by_key(|it| it.serial());
        let stack = |site| self.sites.stack(site);
        let whole = running.into_iter();
        whole.map(|it| log.whole(it, at_ns, stack)).collect()
    }

    /// The blocks that were allocated and freed since the last call, if they are wanted.
    pub(in crate::join) fn take_block_changes(&mut self, at_ns: u64) -> Vec<BlockChanges> {
        let Self { sites, log, .. } = self;
        let log = log.as_mut();
        log.map_or_else(Vec::new, |log| log.take(at_ns, |site| sites.stack(site)))
    }
}
