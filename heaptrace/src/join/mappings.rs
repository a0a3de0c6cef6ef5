//! Mapped memory: a mapping is an allocation of its pages, and is freed with the last of them.
//!
//! Stage: join. A mapping that an allocator made for its blocks is not counted again: the blocks count. Its
//! stack shows it: the stack has a frame in one of the allocator's functions or in code of a file that is
//! only an allocator, or it has the address of the trampoline that the kernel puts in the place of a return
//! address. What a C library maps for itself, above all the stacks of threads, is not counted either.

use heaptrace_common::wire::{MapChange, Unmapped, map_flag};

use super::estimate::Estimate;
use super::generations::Owner;
use super::keyed_hash::HashMap;
use super::ledger::Ledger;
use super::regions::{Regions, RemovedPart};
use super::update::{ProcessId, SiteId};

/// Most parts of mappings that are kept, over all processes: some 64 bytes each.
const MAX_PARTS: usize = 1 << 20;

/// The mappings of all processes, with the sites and marks that they count for.
#[derive(Debug, Default)]
pub(super) struct Mappings {
    by_process: HashMap<ProcessId, Regions<Owner>>,
    /// Parts of mappings that are kept, over all processes.
    parts: usize,
}

impl Mappings {
    /// Whether no more mappings are kept.
    pub(super) fn is_full(&self) -> bool {
        self.parts >= MAX_PARTS
    }

    /// The mappings of a process: their first addresses, the ones after them, and the sites that they count for.
    pub(super) fn of(&self, process: ProcessId) -> impl Iterator<Item = (u64, u64, SiteId)> {
        let regions = self.by_process.get(&process).into_iter();
        let parts = regions.flat_map(Regions::parts);
        parts.map(|(start, end, owner)| (start, end, owner.site))
    }

    /// Frees what a change unmaps or maps over. Returns whether the change made a mapping that is recorded.
    pub(super) fn change(
        &mut self,
        process: ProcessId,
        event: &MapChange,
        ledger: &mut Ledger,
    ) -> bool {
        let has = |flag: u16| event.flags & flag != 0;
        let old_end = event.old_start.saturating_add(event.old_length);
        let end = event.start.saturating_add(event.length);
        let mut was_mapped = false;
        self.update(process, ledger, |regions| {
            was_mapped = regions.was_mapped(event.old_start, old_end, event.entered);
            let mut removed = regions.unmap(event.old_start, old_end, event.entered);
            // The new mapping replaces everything there, even if the end of that was not seen.
            removed.extend(regions.replace(event.start, end, event.time));
            removed
        });
        has(map_flag::RECORDED) && (was_mapped || !has(map_flag::MOVED)) && event.length != 0
    }

    /// Adds the mapping that a change made.
    pub(super) fn add(
        &mut self,
        process: ProcessId,
        site: SiteId,
        event: &MapChange,
        ledger: &mut Ledger,
    ) {
        let entry = ledger.processes().get(process);
        let is_certain = entry.is_some_and(|entry| entry.is_certain(event.time));
        let owner = ledger.owner(site, event.time);
        if is_certain {
            let end = event.start.saturating_add(event.length);
            self.update(process, ledger, |regions| {
                regions.map(event.start, end, event.time, owner);
                Vec::new()
            });
        }
        // Mappings are few and large, so each one is recorded, also in a sampled run.
        let estimate = Estimate::of(event.length, 1);
        ledger.add(process, owner, estimate, 0, is_certain);
        ledger.count_mapping(site, event.length);
    }

    /// Frees what a call unmapped whose event was lost.
    pub(super) fn unmapped(&mut self, process: ProcessId, it: &Unmapped, ledger: &mut Ledger) {
        let end = it.start.saturating_add(it.length);
        self.update(process, ledger, |regions| {
            regions.unmap(it.start, end, it.before)
        });
    }

    /// Forgets the mappings of a process that was paused, merged or has ended. Its totals keep them as
    /// uncertain or live.
    pub(super) fn forget(&mut self, process: ProcessId) {
        if let Some(regions) = self.by_process.remove(&process) {
            self.parts = self.parts.saturating_sub(regions.len());
        }
    }

    /// Changes the mappings of a process, and frees the parts that are removed.
    fn update(
        &mut self,
        process: ProcessId,
        ledger: &mut Ledger,
        change: impl FnOnce(&mut Regions<Owner>) -> Vec<RemovedPart<Owner>>,
    ) {
        let regions = self.by_process.entry(process).or_default();
        let before = regions.len();
        let removed = change(regions);
        self.parts = (self.parts + regions.len()).saturating_sub(before);
        for part in removed {
            let estimate = Estimate::of_part(part.bytes, part.is_last);
            ledger.take_off(process, part.owner, estimate, false);
        }
    }
}
