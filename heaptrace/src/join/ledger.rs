//! The books of a run: its processes and sites, their sums, and the peak.
//!
//! Stage: join. Every allocation and every free changes the sums of a site, of its process and of the run
//! together, so only this type changes any of them. Knows nothing of addresses and of how stacks get their
//! ids.

mod log;

use heaptrace_common::wire::{Alloc, ProcessBegin, ProcessEnd, ProcessState, StackKey};

use super::block_log::BlockLog;
use super::block_sizes::BlockSizes;
use super::blocks::Block;
use super::end::{End, KilledAt};
use super::estimate::{Estimate, Sums};
use super::generations::{Generations, Owner};
use super::keyed_hash::HashMap;
use super::marks::{Mark, MarkCause};
use super::own_peaks::OwnPeaks;
use super::peak::Peak;
use super::process::{Leftovers, ProcessEntry, Sampled, SiteKey};
use super::processes::Processes;
use super::sent_stack::{Sent, SentStack};
use super::sites::{SiteOrigin, Sites};
use super::size_classes::Family;
use super::temporary::LastCalls;
use super::update::{Generation, GenerationId, Process, ProcessId, Site, SiteId, StackId, Totals};
use super::usage::Usage;
use super::usage_sums::Freeing;
use super::usages::Usages;
use crate::proc::memory::Resident;

/// Processes, sites, sums and the peak.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    processes: Processes,
    sites: Sites,
    sums: Sums,
    peak: Peak,
    own_peaks: OwnPeaks,
    usages: Usages,
    generations: Generations,
    /// Each block, if they are wanted.
    log: Option<BlockLog>,
    last_calls: LastCalls,
}

impl Ledger {
    /// The processes, to be read.
    pub(super) fn processes(&self) -> &Processes {
        &self.processes
    }

    /// Adds a process.
    pub(super) fn begin(&mut self, event: &ProcessBegin, record: Process) {
        self.processes.begin(event, record);
    }

    /// Adds a running process that has had no event so far.
    pub(super) fn add_silent(&mut self, record: Process) {
        self.processes.add_silent(record);
    }

    /// Ends a process that had no event until its end.
    pub(super) fn end_silent(&mut self, pid: u32) {
        self.processes.end_silent(pid);
    }

    /// Brings the resident memory of running processes up to date.
    pub(super) fn measure(&mut self, resident: impl Fn(u32) -> Option<Resident>) {
        self.processes.measure(resident);
    }

    /// Takes over the counters that the kernel program keeps of a running process.
    pub(super) fn set_counters(&mut self, state: &ProcessState) {
        if let Some(id) = self.processes.id(state.process)
            && let Some(entry) = self.processes.change(id)
        {
            entry.set_counters(state);
        }
    }

    /// Adds a stack to a process. Returns its key in the kernel's map if the process has ended.
    pub(super) fn add_stack(
        &mut self,
        process: ProcessId,
        id: u64,
        key: StackKey,
        sent: Sent,
    ) -> Option<StackKey> {
        self.processes.change(process)?.add_stack(id, key, sent)
    }

    /// Sets what a stack means from a time on, by the kernel program's id of it.
    pub(super) fn set_stack(&mut self, process: ProcessId, id: u64, stack: SentStack, time: u64) {
        if let Some(entry) = self.processes.change(process) {
            entry.set_stack(id, stack, time);
        }
    }

    /// Gives the sites of a process other stacks.
    pub(super) fn rename_stacks(
        &mut self,
        process: ProcessId,
        renamed: &HashMap<StackId, StackId>,
    ) {
        let entry = self
            .processes
            .change(process)
            .filter(|_| !renamed.is_empty());
        for (site, stack) in entry.into_iter().flat_map(|it| it.rename_stacks(renamed)) {
            self.sites.set_stack(site, stack);
            self.generations.change_all(site, |_| {});
        }
    }

    /// The site of an origin, which is added if it is new.
    pub(super) fn site(&mut self, origin: SiteOrigin) -> Option<SiteId> {
        let Self {
            processes, sites, ..
        } = self;
        let key = SiteKey::new(origin.stack, origin.thread, origin.kind);
        let entry = processes.change(origin.process)?;
        Some(entry.site(key, || sites.add(origin)))
    }

    /// Remembers the site of all blocks of a stack, by the kernel program's id of the stack.
    pub(super) fn set_site_of_stack(&mut self, process: ProcessId, stack: u64, site: SiteId) {
        if let Some(entry) = self.processes.change(process) {
            entry.set_site_of_stack(stack, site);
        }
    }

    /// Adds a block, which may have replaced another one.
    pub(super) fn allocated(
        &mut self,
        process: ProcessId,
        site: SiteId,
        event: &Alloc,
        old: Option<&Block>,
    ) {
        self.processes.count_sample(process);
        self.last_calls
            .allocated(event.process, event.tid, site, event.size);
        let owner = self.owner(site, event.time);
        let mut is_certain = true;
        if let Some(entry) = self.processes.change(process) {
            is_certain = entry.is_certain(event.time);
            let block = entry.add_block(owner, event);
            self.usages.allocated(site, &block, old);
            if let Some(log) = &mut self.log {
                log.born(entry, event.id, block);
            }
        }
        self.sites.note_sizes(site, BlockSizes::of(event.size));
        let estimate = Estimate::of(event.size, event.mean);
        let mean = if event.mean > 1 { event.mean } else { 0 };
        self.add(process, owner, estimate, mean, is_certain);
    }

    /// Adds allocated memory that was sampled at a mean (0: it is always recorded), and whether its end is certain to be seen.
    pub(super) fn add(
        &mut self,
        process: ProcessId,
        owner: Owner,
        estimate: Estimate,
        mean: u64,
        is_certain: bool,
    ) {
        self.generations.add(owner);
        self.count(process, owner, |sums| sums.allocated(estimate, mean));
        self.peak.grow(owner.site.0, estimate);
        if !is_certain {
            self.doubt(process, owner, estimate);
        }
        let Some(entry) = self.processes.change(process) else {
            return;
        };
        let is_ended = entry.record().ended;
        if entry.raise_peak() {
            let now = |site| self.peak.now(site);
            self.own_peaks.at_new_peak(entry.changed_since_peak(), now);
        }
        // An event of a process can come after the event of its end.
        if is_certain && is_ended {
            self.leave(process, owner, estimate);
        }
    }

    /// Takes a block out, by the serial number of its process, and returns it. `fresh` tells whether its thread allocated nothing since;
    /// where all calls are recorded, [`LastCalls`] knows better whether the block is temporary.
    pub(super) fn block_freed(
        &mut self,
        serial: u64,
        id: u64,
        fresh: bool,
        by: Option<Freeing>,
    ) -> Option<Block> {
        let process = self.processes.id(serial)?;
        // A block that is missing was swept before, or its address was handed out again.
        let entry = self.processes.change(process)?;
        let (block, is_certain) = entry.take_block(id)?;
        if let Some(log) = &mut self.log {
            log.freed(entry, id, by);
        }
        self.usages.freed(&block, by);
        let temporary = by
            .and_then(|by| self.last_calls.freed(serial, by.tid, &block))
            .unwrap_or(fresh);
        // What it added, even if the sampling rate has changed since.
        let estimate = Estimate::of(block.size, block.mean);
        let owner = Owner {
            site: block.site,
            mark: block.mark,
        };
        if is_certain {
            self.take_off(process, owner, estimate, temporary);
        } else {
            self.count(process, owner, |sums| sums.proven_freed(estimate));
        }
        Some(block)
    }

    /// Counts the size of a mapping.
    pub(super) fn count_mapping(&mut self, site: SiteId, length: u64) {
        self.usages.mapped(site, length);
    }

    /// Takes off freed memory that was certainly live.
    pub(super) fn take_off(
        &mut self,
        process: ProcessId,
        owner: Owner,
        estimate: Estimate,
        temporary: bool,
    ) {
        let entry = self.processes.get(process);
        // It counts as left, not as live, and is not in the run's live bytes any more.
        if entry.is_some_and(|entry| entry.record().ended) {
            return self.count(process, owner, |sums| {
                sums.reclaim(estimate);
                sums.freed(estimate, temporary);
            });
        }
        self.count(process, owner, |sums| sums.freed(estimate, temporary));
        self.peak.shrink(owner.site.0, estimate);
    }

    /// Makes live memory uncertain.
    fn doubt(&mut self, process: ProcessId, owner: Owner, estimate: Estimate) {
        self.count(process, owner, |sums| sums.doubt(estimate));
        self.peak.shrink(owner.site.0, estimate);
    }

    /// Makes live memory memory that its process left when it ended.
    fn leave(&mut self, process: ProcessId, owner: Owner, estimate: Estimate) {
        self.count(process, owner, |sums| sums.leave(estimate));
        self.peak.shrink(owner.site.0, estimate);
    }

    /// Changes the sums of a site, of its generation, of its process and of the run.
    fn count(&mut self, process: ProcessId, owner: Owner, change: impl Fn(&mut Sums)) {
        change(&mut self.sums);
        if let Some(entry) = self.processes.change(process) {
            entry.change_sums(&change);
            self.own_peaks
                .changed(owner.site.0, entry.changed_since_peak());
        }
        self.sites.change(owner.site, &change);
        self.generations.change(owner, change);
    }

    /// Changes what is certainly live at each site of a process.
    fn for_live(
        &mut self,
        process: ProcessId,
        change: impl Fn(&mut Self, ProcessId, Owner, Estimate),
        of_generation: fn(&mut Sums, Estimate),
    ) {
        let entry = self.processes.get(process);
        let sites: Vec<SiteId> = entry.map_or_else(Vec::new, |entry| entry.sites().collect());
        for site in sites {
            let live = self.sites.live(site);
            if live != Estimate::default() {
                // The sums of its generations change each by its own part.
                change(self, process, Owner { site, mark: 0 }, live);
                self.generations
                    .change_all(site, |sums| of_generation(sums, sums.live()));
            }
        }
    }

    /// Pauses a process: everything that it has is uncertain from now on. Returns its serial number.
    pub(super) fn pause(
        &mut self,
        process: ProcessId,
        overhead: u32,
        elapsed_ns: u64,
        time: u64,
    ) -> Option<u64> {
        let entry = self.processes.change(process)?;
        entry.pause(overhead, elapsed_ns, time);
        let serial = entry.serial();
        self.for_live(process, Self::doubt, Sums::doubt);
        Some(serial)
    }

    /// Sets the share of its processor time that probes took in all of a process with a duty cycle.
    pub(super) fn set_reached(&mut self, pid: u32, reached: u32) {
        let process = self.processes.running(pid);
        if let Some(entry) = process.and_then(|it| self.processes.change(it)) {
            entry.set_reached(reached);
        }
    }

    /// Adds time in which a process was not probed. Returns whether the process is still running.
    pub(super) fn add_unprobed_time(&mut self, process: ProcessId, serial: u64, ns: u64) -> bool {
        let entry = self.processes.change(process);
        let Some(entry) = entry.filter(|entry| entry.serial() == serial) else {
            return false;
        };
        entry.add_unprobed_time(ns);
        !entry.record().ended
    }

    /// Ends a process. What it has not freed counts as left, not as live, from then on. Frees of it that become
    /// known later are joined until it is closed. Returns its pid, the first time.
    pub(super) fn end(&mut self, process: ProcessId, event: &ProcessEnd) -> Option<u32> {
        let entry = self.processes.change(process)?;
        if entry.record().ended {
            return None;
        }
        entry.end(event);
        let pid = entry.record().pid;
        if let Some(log) = &mut self.log {
            log.ended(entry, event.time);
        }
        self.for_live(process, Self::leave, Sums::leave);
        self.processes.ended(pid, process);
        Some(pid)
    }

    /// Sets how an ended process ended.
    pub(super) fn set_end(&mut self, process: ProcessId, end: End, killed_at: Option<KilledAt>) {
        if let Some(entry) = self.processes.change(process) {
            entry.set_end(end, killed_at);
        }
    }

    /// Takes what an ended process has left: no more events of it will be joined.
    pub(super) fn close(&mut self, process: ProcessId) -> Option<Leftovers> {
        let entry = self.processes.change(process)?;
        if let Some(log) = &mut self.log {
            log.close(entry, |site| self.sites.stack(site));
        }
        Some(entry.close())
    }

    /// Takes an ended process out, to be merged into a record of many.
    pub(super) fn vacate(&mut self, process: ProcessId) -> Option<ProcessEntry> {
        self.processes.vacate(process)
    }

    /// Adds a record that stands for many ended processes.
    pub(super) fn add_merged(&mut self, record: Process) -> ProcessId {
        self.processes.add_merged(record)
    }

    /// Merges an ended process, with its sites, into a record of many.
    pub(super) fn merge(&mut self, mut ended: ProcessEntry, into: ProcessId) {
        let Self {
            processes,
            sites,
            peak,
            own_peaks,
            usages,
            generations,
            ..
        } = self;
        let Some(entry) = processes.change(into) else {
            return;
        };
        // The record keeps the highest peak of all its processes, and the sites of that process.
        let is_higher = entry.peak().is_below(ended.peak());
        if is_higher {
            entry.sites().for_each(|site| own_peaks.clear(site.0));
        }
        for (key, from) in ended.take_sites() {
            let to = entry.site(key, || from);
            sites.move_to(from, into);
            if !is_higher {
                own_peaks.clear(from.0);
            }
            if to != from {
                if is_higher {
                    own_peaks.move_to(from.0, to.0);
                }
                sites.merge(from, to);
                peak.merge(from.0, to.0);
                usages.merge(from, to);
                generations.merge(from, to);
            } else {
                generations.change_all(from, |_| {});
            }
        }
        entry.merge(ended);
    }

    /// Adds a mark, at a time of both clocks.
    pub(super) fn mark(&mut self, cause: MarkCause, at_ns: u64, time: u64) {
        self.generations.mark(cause, at_ns, time);
    }

    /// What memory of a site counts for that is allocated at a time.
    pub(super) fn owner(&self, site: SiteId, time: u64) -> Owner {
        let mark = self.generations.at(time);
        Owner { site, mark }
    }

    /// The generations, to be read.
    pub(super) fn generations(&self) -> &Generations {
        &self.generations
    }

    /// All marks, if they have changed since the last call.
    pub(super) fn take_marks(&mut self) -> Vec<Mark> {
        self.generations.take_marks()
    }

    /// The generations that changed since the last call.
    pub(super) fn take_changed_generations(&mut self) -> Vec<(GenerationId, Generation)> {
        self.generations.take_changed(&self.sites)
    }

    /// The samples that arrived since the last call, and the processes that ended.
    pub(super) fn take_sampled(&mut self) -> Vec<Sampled> {
        self.processes.take_sampled()
    }

    /// The processes that changed since the last call.
    pub(super) fn take_changed_processes(&mut self) -> Vec<(ProcessId, Process)> {
        self.processes.take_changed()
    }

    /// The sites that changed since the last call.
    pub(super) fn take_changed_sites(&mut self) -> Vec<(SiteId, Site)> {
        self.sites.take_changed(&mut self.peak, &mut self.own_peaks)
    }

    /// Counts how sites use their blocks, from now on.
    pub(super) fn count_usages(&mut self) {
        self.usages.count();
    }

    /// Counts temporary blocks as heaptrack does, from now on. All calls have to be recorded.
    pub(super) fn follow_calls(&mut self) {
        self.last_calls.follow();
    }

    /// Hands out how all changed sites use their blocks, with the next update.
    pub(super) fn send_all_usages(&mut self) {
        self.usages.send_all();
    }

    /// How sites use their blocks, where much has changed since it was sent.
    pub(super) fn take_usages(&mut self) -> Vec<(SiteId, Usage)> {
        let Self {
            processes,
            sites,
            usages,
            ..
        } = self;
        usages.take_due(|site, family: Family| {
            let entry = sites.process(site).and_then(|id| processes.get(id));
            let mut allocators = entry.iter().flat_map(|it| &it.record().allocators);
            allocators.any(|it| it.kind == family.name())
        })
    }

    /// Totals of the run.
    pub(super) fn totals(&self) -> Totals {
        self.sums.totals(self.peak.highest())
    }
}
