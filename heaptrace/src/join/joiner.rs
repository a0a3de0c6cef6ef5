//! The join itself: events in, counters out.
//!
//! Stage: join. Everything that reaches this file in one call is complete: the sideband has been
//! read up to after the last event, so that mappings are known before the stacks in them. Knows
//! nothing of the kernel's maps but the keys of blocks and stacks.

mod files;
mod mappings;
mod quality;
mod stacks;

use std::collections::hash_map::Entry;

use heaptrace_common::wire::{Alloc, BlockKey, ProcessBegin, ProcessEnd, StackKey, end, flag};

pub(super) use stacks::SentStack;

use super::addresses::Addresses;
use super::blocks::{Block, Blocks};
use super::cgroups::Cgroups;
use super::command_line;
use super::duty_cycle::Paused;
use super::estimate::{Estimate, Sums};
use super::interner::Stacks;
use super::keyed_hash::HashMap;
use super::merge_ended::{Ended, Room};
use super::peak::Peak;
use super::processes::{self, Processes, Sampled, SiteKey};
use super::threads::{self, Threads};
use super::update::{
    Kind, LocationId, Process, ProcessId, Quality, RateChange, Site, SiteId, StackId, ThreadNameId,
    Update,
};
use crate::events::record::Event;
use crate::events::sideband::SideEvent;

/// Joins the events of a run.
#[derive(Debug)]
pub struct Joiner {
    pub(super) ended: Ended,
    addresses: Addresses,
    stacks: Stacks,
    /// The frames of a stack, while it is taken in.
    located: Vec<LocationId>,
    pub(super) processes: Processes,
    cgroups: Cgroups,
    /// Where threads of different names are kept apart.
    threads: Option<Threads>,
    pub(super) sites: Vec<SiteState>,
    changed_sites: Vec<SiteId>,
    /// Samples whose stack is broken off, per reason.
    broken: HashMap<&'static str, u64>,
    pub(super) peak: Peak,
    sums: Sums,
    pub(super) quality: Quality,
    /// How often sizes of each class were asked for.
    sizes: Vec<u64>,
    rates: Vec<RateChange>,
    rate_changes: u32,
    /// Blocks in the kernel's live map whose process is gone, by its serial number.
    orphans: Vec<(u64, Blocks)>,
    /// Stacks in the kernel's map of which the same is true.
    orphan_stacks: Vec<StackKey>,
    records_mappings: bool,
    /// Parts of mappings that are kept.
    parts: usize,
    /// Processes that are not probed now.
    pub(super) paused: Vec<Paused>,
}

/// Changes of the sampling rate that a run lists at most.
const MAX_RATE_CHANGES: u32 = 1 << 16;

#[derive(Clone, Copy, Debug)]
pub(super) struct SiteState {
    pub(super) process: ProcessId,
    stack: StackId,
    thread: Option<ThreadNameId>,
    kind: Kind,
    pub(super) sums: Sums,
    is_changed: bool,
}

impl Joiner {
    /// Nothing joined yet.
    pub fn new(follows_all: bool, room: Room) -> Self {
        Self {
            ended: Ended::new(room),
            addresses: Addresses::new(follows_all),
            stacks: Stacks::default(),
            located: Vec::new(),
            processes: Processes::default(),
            cgroups: Cgroups::default(),
            threads: None,
            sites: Vec::new(),
            changed_sites: Vec::new(),
            broken: HashMap::default(),
            peak: Peak::default(),
            sums: Sums::default(),
            sizes: Vec::new(),
            rates: Vec::new(),
            rate_changes: 0,
            quality: Quality {
                lost: ["unjoined", "swept_live"]
                    .map(|it| (it.to_owned(), 0))
                    .into(),
                ..Quality::default()
            },
            orphans: Vec::new(),
            orphan_stacks: Vec::new(),
            records_mappings: false,
            parts: 0,
            paused: Vec::new(),
        }
    }

    /// Keeps sites of threads of different names apart, from now on.
    pub fn tell_threads_apart(&mut self) {
        self.threads = Some(Threads::new());
    }

    /// Makes a process known: one that runs, with its mappings.
    pub fn add_process(&mut self, pid: u32) {
        self.addresses.add_process(pid);
    }

    /// Whether a process was made known, or descends from one that was.
    pub fn follows(&self, pid: u32) -> bool {
        self.addresses.follows(pid)
    }

    /// Whether a process is of interest.
    pub fn knows(&self, pid: u32) -> bool {
        self.addresses.knows(pid)
    }

    /// Whether a process is of interest, or may turn out to be.
    pub fn may_know(&self, pid: u32) -> bool {
        self.addresses.may_know(pid)
    }

    /// The processes that are of interest, ended ones that may still be asked for included.
    pub fn followed(&self) -> Vec<u32> {
        self.addresses.followed()
    }

    /// Takes in what perf recorded of mappings and processes.
    pub fn sideband(&mut self, event: SideEvent) {
        self.addresses.sideband(event);
    }

    /// Forgets processes that ended before a time up to which all events have come in.
    pub fn settle(&mut self, until: u64) {
        let Self {
            addresses,
            processes,
            ..
        } = self;
        addresses.settle(until, |pid| processes.is_running(pid));
    }

    /// Takes in an event of the kernel program.
    pub fn event(&mut self, event: Event) {
        match event {
            Event::Alloc(event) => self.allocated(&event),
            Event::Free(event) => {
                let temporary = event.flags & flag::TEMPORARY != 0;
                self.block_freed(event.process, event.id, temporary);
            }
            Event::MapChange(event) => self.mapped(&event),
            Event::Stack(head, frames) => self.stack(&head, &frames),
            Event::ProcessBegin(event) => self.process_began(&event),
            Event::ProcessEnd(event) => self.process_ended(&event),
            // Not of what was allocated.
            Event::NeedTable(_) => {}
        }
    }

    /// Takes in the free of a block whose event was lost, as the live map tells it.
    pub fn swept(&mut self, process: u64, id: u64) {
        self.block_freed(process, id, false);
    }

    fn allocated(&mut self, event: &Alloc) {
        let Some(process) = self.processes.id(event.process) else {
            return self.lost_one("unjoined");
        };
        let Some(sent) = self.processes.sent(process, event.stack) else {
            return self.lost_one("unjoined");
        };
        let temporary = event.flags & flag::TEMPORARY != 0;
        if event.replaced != 0 {
            self.block_freed(event.process, event.replaced, false);
        }
        if event.freed != 0 {
            self.block_freed(event.process, event.freed, temporary);
        }
        let Some(site) = self.site_of_block(process, sent, event) else {
            return;
        };
        self.count_stack(sent);
        self.processes.sampled(process);
        let mut is_certain = true;
        if let Some(entry) = self.processes.change(process) {
            is_certain = event.time >= entry.paused;
            entry.blocks.insert(
                event.id,
                Block {
                    site,
                    address: event.address,
                    size: event.size,
                    mean: event.mean,
                    turn: entry.turn - u32::from(!is_certain),
                },
            );
        }
        let estimate = Estimate::of(event.size, event.mean);
        self.add(process, site, estimate, is_certain);
    }

    /// Adds what was allocated, and whether it is certain that its end will be seen.
    fn add(&mut self, process: ProcessId, site: SiteId, estimate: Estimate, is_certain: bool) {
        self.count(process, site, |sums| sums.allocated(estimate));
        self.peak.grow(site.0, estimate);
        if !is_certain {
            self.count(process, site, |sums| sums.doubt(estimate));
            self.peak.shrink(site.0, estimate);
        }
        if let Some(entry) = self.processes.change(process)
            && entry.peak.is_below(&entry.sums.live().bytes)
        {
            entry.peak = entry.sums.live().bytes;
        }
    }

    fn block_freed(&mut self, serial: u64, id: u64, temporary: bool) {
        // A block that is not there was swept, or proven freed by its address, before.
        let Some(process) = self.processes.id(serial) else {
            return;
        };
        let Some(entry) = self.processes.change(process) else {
            return;
        };
        let turn = entry.turn;
        let Some(block) = entry.blocks.remove(id) else {
            return;
        };
        // What it added, whatever the rate is by now.
        let estimate = Estimate::of(block.size, block.mean);
        if block.turn != turn {
            return self.count(process, block.site, |sums| sums.proven_freed(estimate));
        }
        self.count(process, block.site, |sums| sums.freed(estimate, temporary));
        self.peak.shrink(block.site.0, estimate);
    }

    /// Changes the counters of a site, of its process and of the run alike.
    pub(super) fn count(&mut self, process: ProcessId, site: SiteId, change: impl Fn(&mut Sums)) {
        change(&mut self.sums);
        if let Some(entry) = self.processes.change(process) {
            change(&mut entry.sums);
        }
        if let Some(state) = self.sites.get_mut(site.0 as usize) {
            change(&mut state.sums);
        }
        self.changed(site);
    }

    /// Notes that a site has to be told.
    pub(super) fn changed(&mut self, site: SiteId) {
        if let Some(state) = self.sites.get_mut(site.0 as usize)
            && !state.is_changed
        {
            state.is_changed = true;
            self.changed_sites.push(site);
        }
    }

    /// Counts something that was lost on its way here.
    pub fn lost_one(&mut self, reason: &str) {
        *self.quality.lost.entry(reason.to_owned()).or_default() += 1;
    }

    fn thread(
        &mut self,
        process: ProcessId,
        serial: u64,
        tid: u32,
        time: u64,
    ) -> Option<ThreadNameId> {
        let threads = self.threads.as_mut()?;
        let pid = self.processes.get(process)?.record.pid;
        threads.name(serial, tid, time, || threads::ask(pid, tid))
    }

    fn site_of_block(
        &mut self,
        process: ProcessId,
        sent: SentStack,
        event: &Alloc,
    ) -> Option<SiteId> {
        if sent.site.is_some() {
            return sent.site;
        }
        let thread = self.thread(process, event.process, event.tid, event.time);
        let site = self.site(process, sent.stack, thread, Kind::Heap)?;
        if self.threads.is_none()
            && let Some(entry) = self.processes.change(process)
            && let Some(sent) = entry.sent.get_mut(&event.stack)
        {
            sent.site = Some(site);
        }
        Some(site)
    }

    fn site(
        &mut self,
        process: ProcessId,
        stack: StackId,
        thread: Option<ThreadNameId>,
        kind: Kind,
    ) -> Option<SiteId> {
        let entry = self.processes.change(process)?;
        let next = SiteId(self.sites.len() as u32);
        let id = match entry.sites.entry(SiteKey::new(stack, thread, kind)) {
            Entry::Occupied(known) => return Some(*known.get()),
            Entry::Vacant(new) => *new.insert(self.ended.vacant_sites.pop().unwrap_or(next)),
        };
        let state = SiteState {
            process,
            stack,
            thread,
            kind,
            sums: Sums::default(),
            // One that is told already is told as what it is then.
            is_changed: self
                .sites
                .get(id.0 as usize)
                .is_some_and(|state| state.is_changed),
        };
        match self.sites.get_mut(id.0 as usize) {
            Some(place) => *place = state,
            None => self.sites.push(state),
        }
        Some(id)
    }

    fn process_began(&mut self, event: &ProcessBegin) {
        let pid = event.tgid;
        let allocators = self.addresses.allocators_of(pid, event.time);
        let command = processes::name(&event.comm);
        let record = Process {
            pid,
            start_time_ns: event.start_time,
            command_line: command_line::of(pid, &command),
            command,
            cgroup: self.cgroups.of(pid, event.cgroup),
            allocators,
            ..Process::default()
        };
        self.processes.begin(event, record);
    }

    fn process_ended(&mut self, event: &ProcessEnd) {
        let Some(id) = self.processes.id(event.process) else {
            return;
        };
        let Some(entry) = self.processes.change(id) else {
            return;
        };
        entry.record.ended = true;
        entry.record.failed_allocations = event.failed;
        entry.record.untracked_frees = event.untracked;
        entry.record.lost = event.lost;
        let blocks = std::mem::take(&mut entry.blocks);
        self.orphans.push((entry.serial, blocks));
        self.orphan_stacks.append(&mut entry.stacks);
        entry.sent = HashMap::default();
        let pid = entry.record.pid;
        let sites: Vec<SiteId> = entry.sites.values().copied().collect();
        self.forget_regions(id);
        self.processes.ended(pid, id);
        if let Some(threads) = &mut self.threads {
            threads.ended(event.process);
        }
        for site in sites {
            self.peak.clear(site.0);
        }
        if event.reason == end::EXIT {
            self.addresses.forget(pid, event.time);
        }
        self.keep_ended(id);
    }

    /// The samples that came since the last call, per process.
    pub fn take_sampled(&mut self) -> Vec<Sampled> {
        self.processes.take_sampled()
    }

    /// Keys of blocks in the kernel's live map whose process is gone, once each.
    pub fn take_orphans(&mut self) -> impl Iterator<Item = BlockKey> + use<> {
        let orphans = std::mem::take(&mut self.orphans).into_iter();
        orphans.flat_map(|(process, blocks)| {
            let addresses = blocks.into_addresses();
            addresses.map(move |address| BlockKey { address, process })
        })
    }

    /// What changed since the last call.
    pub fn take_update(&mut self, elapsed_ns: u64) -> Update {
        self.count_paused_time(elapsed_ns);
        let entries = || self.processes.entries.iter().map(|entry| &entry.record);
        self.quality.untracked_frees = entries().map(|record| record.untracked_frees).sum();
        self.quality.failed_allocations = entries().map(|record| record.failed_allocations).sum();
        let mut changed = std::mem::take(&mut self.changed_sites);
        changed.extend(self.peak.take_moved().into_iter().map(SiteId));
        changed.sort_unstable();
        changed.dedup();
        let sites = changed
            .into_iter()
            .filter_map(|id| {
                let state = self.sites.get_mut(id.0 as usize)?;
                state.is_changed = false;
                let site = Site {
                    process: state.process,
                    stack: state.stack,
                    thread: state.thread,
                    kind: state.kind,
                    totals: state.sums.totals(&self.peak.at_peak(id.0)),
                };
                Some((id, site))
            })
            .collect();
        for (reason, count) in &self.broken {
            let kind = format!("stack_broken_{reason}");
            self.quality.noted.insert(kind, *count);
        }
        let (modules, locations) = self.addresses.take_new();
        self.quality.unprobed.clone_from(self.addresses.unprobed());
        Update {
            elapsed_ns,
            modules,
            locations,
            stacks: self.stacks.take_new(),
            threads: self
                .threads
                .as_mut()
                .map(Threads::take_new)
                .unwrap_or_default(),
            processes: self.processes.take_changed(),
            sites,
            sizes: self.sizes.clone(),
            rates: std::mem::take(&mut self.rates),
            totals: self.sums.totals(self.peak.highest()),
            quality: self.quality.clone(),
        }
    }
}
