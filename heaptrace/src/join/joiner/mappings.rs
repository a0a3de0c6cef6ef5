//! Mapped memory, joined: a mapping is an allocation of its pages, and freed with the last of them.
//!
//! Stage: join. A mapping that an allocator made for its own blocks counts as these, and not again. That
//! shows in its stack: it goes through one of the allocator's functions, or through the code of a file
//! that is nothing else, or up to the trampoline that the kernel puts in the place of a return address.
//! What a C library maps for itself, the stacks of threads above all, is not the program's either.

use heaptrace_common::wire::{MapChange, Unmapped, map_flag};

use super::Joiner;
use crate::join::estimate::Estimate;
use crate::join::processes::Mapped;
use crate::join::regions::Gone;
use crate::join::update::{Kind, ProcessId, SiteId};

/// Most parts of mappings that are kept, over all processes: some 64 bytes each.
const MAX_PARTS: usize = 1 << 20;

impl Joiner {
    /// Says that mappings are recorded.
    pub fn tell_mappings(&mut self) {
        self.records_mappings = true;
        self.quality.lost.insert("mappings_full".to_owned(), 0);
    }

    /// Takes in the unmapping of what a call gave back whose event was lost.
    pub fn unmapped(&mut self, it: &Unmapped) {
        let Some(process) = self.processes.id(it.process) else {
            return;
        };
        let gone = self.change_regions(process, |regions| {
            regions.take(it.start, it.start.saturating_add(it.length), it.before)
        });
        self.give_back(process, gone);
    }

    pub(super) fn mapped(&mut self, event: &MapChange) {
        let has = |flag: u16| event.flags & flag != 0;
        let Some(process) = self.processes.id(event.process) else {
            if has(map_flag::RECORDED) {
                self.lost_one("unjoined");
            }
            return;
        };
        let old_end = event.old_start.saturating_add(event.old_length);
        let end = event.start.saturating_add(event.length);
        let mut was_known = false;
        let gone = self.change_regions(process, |regions| {
            was_known = regions.knew(event.old_start, old_end, event.entered);
            let mut gone = regions.take(event.old_start, old_end, event.entered);
            // Nothing else is there any more, whether its end was seen or not.
            gone.extend(regions.replace(event.start, end, event.time));
            gone
        });
        self.give_back(process, gone);
        let is_recorded = has(map_flag::RECORDED) && (was_known || !has(map_flag::MOVED));
        if !is_recorded || event.length == 0 {
            return;
        }
        let Some(sent) = self.processes.sent(process, event.stack) else {
            return self.lost_one("unjoined");
        };
        if sent.is_allocators {
            return;
        }
        if self.parts >= MAX_PARTS {
            return self.lost_one("mappings_full");
        }
        let thread = self.thread(process, event.process, event.tid, event.time);
        let Some(site) = self.site(process, sent.stack, thread, Kind::Mapped) else {
            return;
        };
        self.count_stack(sent);
        let paused = self.processes.change(process).map(|it| it.paused);
        let is_certain = paused.is_some_and(|time| event.time >= time);
        if is_certain {
            self.change_regions(process, |regions| {
                regions.put(event.start, end, event.time, site);
                Vec::new()
            });
        }
        // Each is recorded: they are few, and large.
        self.add(process, site, Estimate::of(event.length, 1), is_certain);
    }

    /// Forgets what a process has mapped that ended, or is not probed now. It stays in the totals as what it had not
    /// given back, or as what is uncertain.
    pub(in crate::join) fn forget_regions(&mut self, process: ProcessId) {
        self.change_regions(process, |regions| {
            *regions = Mapped::default();
            Vec::new()
        });
    }

    fn change_regions(
        &mut self,
        process: ProcessId,
        change: impl FnOnce(&mut Mapped) -> Vec<Gone<SiteId>>,
    ) -> Vec<Gone<SiteId>> {
        let Some(entry) = self.processes.change(process) else {
            return Vec::new();
        };
        let before = entry.mapped.len();
        let gone = change(&mut entry.mapped);
        self.parts = (self.parts + entry.mapped.len()).saturating_sub(before);
        gone
    }

    fn give_back(&mut self, process: ProcessId, gone: Vec<Gone<SiteId>>) {
        for part in gone {
            let estimate = Estimate::of_part(part.bytes, part.is_last);
            self.count(process, part.of, |sums| sums.freed(estimate, false));
            self.peak.shrink(part.of.0, estimate);
        }
    }
}
