//! The join itself: events in, counters out.
//!
//! Stage: join. Everything that reaches this file in one call is complete: the sideband has been
//! read up to after the last event, so that mappings are known before the stacks in them. Knows
//! nothing of the kernel's maps but the keys of blocks.

use std::collections::HashMap;
use std::fs::File;

use heaptrace_common::wire::{
    Alloc, BlockKey, Free, ProcessBegin, ProcessEnd, StackHead, end, flag, walk,
};

use super::interner::Interner;
use super::modules::{Modules, OpenFiles};
use super::peak::Peak;
use super::processes::{self, Block, Processes};
use super::spaces::{Spaces, Span};
use super::update::{
    Allocator, Completeness, Location, LocationId, Module, ModuleId, Process, ProcessId, Quality,
    Site, SiteId, Stack, StackId, Totals, Update,
};
use crate::events::record::Event;
use crate::events::sideband::{Change, Mapped, SideEvent};
use crate::probes::{allocator, elf, maps};

/// Joins the events of a run.
#[derive(Debug)]
pub struct Joiner {
    /// Whether every process is of interest, or only those made known and their descendants.
    follows_all: bool,
    allocators: Vec<Allocator>,
    /// Build ids of their files.
    probed: Vec<Vec<u8>>,
    spaces: Spaces,
    modules: Modules,
    locations: Interner<Location>,
    stacks: Interner<Stack>,
    /// Stacks by the ids of the kernel program.
    sent_stacks: HashMap<u64, StackId>,
    processes: Processes,
    sites: Vec<SiteState>,
    changed_sites: Vec<SiteId>,
    peak: Peak,
    totals: Totals,
    quality: Quality,
    /// Processes whose first thread ended, and when.
    exited: Vec<(u32, u64)>,
    /// Blocks in the kernel's live map whose process is gone.
    orphans: Vec<BlockKey>,
}

#[derive(Clone, Copy, Debug)]
struct SiteState {
    site: Site,
    is_changed: bool,
}

impl Joiner {
    /// Nothing joined yet.
    pub fn new(follows_all: bool) -> Self {
        Self {
            follows_all,
            allocators: Vec::new(),
            probed: Vec::new(),
            spaces: Spaces::default(),
            modules: Modules::default(),
            locations: Interner::new(),
            stacks: Interner::new(),
            sent_stacks: HashMap::new(),
            processes: Processes::default(),
            sites: Vec::new(),
            changed_sites: Vec::new(),
            peak: Peak::default(),
            totals: Totals::default(),
            quality: Quality::default(),
            exited: Vec::new(),
            orphans: Vec::new(),
        }
    }

    /// Makes an allocator known that is probed.
    pub fn add_allocator(&mut self, allocator: Allocator, build_id: Vec<u8>) {
        self.allocators.push(allocator);
        self.probed.push(build_id);
    }

    /// Makes a process known: one that runs, with its mappings.
    pub fn add_process(&mut self, pid: u32) {
        self.spaces.begin(pid, 0);
        let thread = maps::living_thread(pid);
        let Ok(text) = maps::read(thread) else {
            return;
        };
        for mapping in maps::parse(&text).filter(|mapping| mapping.executable) {
            let open = || allocator::open_mapped(thread, &mapping).ok();
            let file = if mapping.inode == 0 { None } else { open() };
            let build_id = file.as_ref().map(elf::build_id).unwrap_or_default();
            if mapping.path.is_empty() {
                continue;
            }
            let mapped = Mapped {
                start: mapping.start,
                end: mapping.end,
                offset: mapping.offset,
                path: mapping.path,
                build_id,
            };
            self.map(pid, 0, &mapped, || file);
        }
    }

    /// Takes in what perf recorded of mappings and processes.
    pub fn sideband(&mut self, event: SideEvent) {
        let SideEvent { time, pid, change } = event;
        match change {
            Change::Forked { parent } if self.spaces.knows(parent) => {
                self.spaces.fork(pid, parent, time);
            }
            Change::Exec { .. } if self.follows_all || self.spaces.knows(pid) => {
                self.spaces.begin(pid, time);
            }
            Change::Mapped(mapped) if self.spaces.knows(pid) => {
                // Anonymous code has no file to find names in.
                if !mapped.path.starts_with("//") {
                    self.check_probed(&mapped);
                    self.map(pid, time, &mapped, || open_mapped(pid, &mapped));
                }
            }
            Change::Exited => self.exited.push((pid, time)),
            Change::Forked { .. } | Change::Exec { .. } | Change::Mapped(_) => {}
        }
    }

    /// Notes a C library that no probe is on. One without a build id can't be told from a probed one.
    fn check_probed(&mut self, mapped: &Mapped) {
        if allocator::may_be_glibc(&mapped.path)
            && !mapped.build_id.is_empty()
            && !self.probed.contains(&mapped.build_id)
        {
            self.quality.unprobed.insert(mapped.path.clone());
        }
    }

    /// Forgets processes that ended before a time up to which all events have come in: nobody will
    /// ask for their mappings any more.
    pub fn settle(&mut self, until: u64) {
        let Self {
            exited,
            spaces,
            processes,
            ..
        } = self;
        exited.retain(|(pid, time)| {
            if *time >= until {
                return true;
            }
            // One with a record is forgotten when that ends: its first thread may have gone alone.
            if !processes.is_running(*pid) {
                spaces.forget(*pid, *time);
            }
            false
        });
    }

    fn map(
        &mut self,
        pid: u32,
        since: u64,
        mapped: &Mapped,
        open: impl FnOnce() -> Option<File>,
    ) -> ModuleId {
        let module = Module {
            path: mapped.path.clone(),
            build_id: mapped.build_id.clone(),
            text_start: mapped.start,
            text_end: mapped.end,
            text_offset: mapped.offset,
            root: root_of(pid),
        };
        let module = self.modules.intern(module, open);
        self.spaces.map(
            pid,
            Span {
                start: mapped.start,
                end: mapped.end,
                offset: mapped.offset,
                module,
                since,
            },
        );
        module
    }

    /// Takes in an event of the kernel program.
    pub fn event(&mut self, event: Event) {
        match event {
            Event::Alloc(event) => self.allocated(&event),
            Event::Free(event) => {
                let temporary = event.flags & flag::TEMPORARY != 0;
                self.freed(&event, temporary);
            }
            Event::Stack(head, frames) => self.stack(&head, &frames),
            Event::ProcessBegin(event) => self.process_began(&event),
            Event::ProcessEnd(event) => self.process_ended(&event),
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
        let Some(stack) = self.sent_stacks.get(&event.stack).copied() else {
            return self.lost_one("unjoined");
        };
        let temporary = event.flags & flag::TEMPORARY != 0;
        if event.replaced != 0 {
            self.block_freed(event.process, event.replaced, false);
        }
        if event.freed != 0 {
            self.block_freed(event.process, event.freed, temporary);
        }
        let Some(site) = self.site(process, stack) else {
            return;
        };
        match self.stacks.get(stack.0).map(|stack| stack.completeness) {
            Some(Completeness::Complete) => self.quality.stacks_complete += 1,
            Some(Completeness::Truncated) => self.quality.stacks_truncated += 1,
            _ => self.quality.stacks_broken += 1,
        }
        self.quality.samples += 1;
        if let Some(entry) = self.processes.change(process) {
            entry.blocks.insert(
                event.id,
                Block {
                    site,
                    address: event.address,
                    size: event.size,
                },
            );
        }
        self.count(process, site, |totals| {
            totals.allocations += 1;
            totals.allocated_bytes += event.size;
            totals.live_allocations += 1;
            totals.live_bytes += event.size;
        });
        self.peak.grow(site.0, event.size);
        self.totals.peak_live_bytes = self.peak.highest();
        if let Some(entry) = self.processes.change(process) {
            let totals = &mut entry.record.totals;
            totals.peak_live_bytes = totals.peak_live_bytes.max(totals.live_bytes);
        }
    }

    fn freed(&mut self, event: &Free, temporary: bool) {
        self.block_freed(event.process, event.id, temporary);
    }

    fn block_freed(&mut self, serial: u64, id: u64, temporary: bool) {
        // A block that is not there was swept, or proven freed by its address, before.
        let Some(process) = self.processes.id(serial) else {
            return;
        };
        let Some(block) = self
            .processes
            .change(process)
            .and_then(|entry| entry.blocks.remove(&id))
        else {
            return;
        };
        self.count(process, block.site, |totals| {
            totals.frees += 1;
            totals.freed_bytes += block.size;
            totals.live_allocations = totals.live_allocations.saturating_sub(1);
            totals.live_bytes = totals.live_bytes.saturating_sub(block.size);
            totals.temporary_allocations += u64::from(temporary);
        });
        self.peak.shrink(block.site.0, block.size);
    }

    /// Changes the counters of a site, of its process and of the run alike.
    fn count(&mut self, process: ProcessId, site: SiteId, change: impl Fn(&mut Totals)) {
        change(&mut self.totals);
        if let Some(entry) = self.processes.change(process) {
            change(&mut entry.record.totals);
        }
        if let Some(state) = self.sites.get_mut(site.0 as usize) {
            change(&mut state.site.totals);
            if !state.is_changed {
                state.is_changed = true;
                self.changed_sites.push(site);
            }
        }
    }

    /// Counts something that was lost on its way here.
    pub fn lost_one(&mut self, reason: &str) {
        *self.quality.lost.entry(reason.to_owned()).or_default() += 1;
    }

    fn site(&mut self, process: ProcessId, stack: StackId) -> Option<SiteId> {
        let next = SiteId(self.sites.len() as u32);
        let entry = self.processes.change(process)?;
        let site = *entry.sites.entry(stack).or_insert(next);
        if site == next {
            self.sites.push(SiteState {
                site: Site {
                    process,
                    stack,
                    totals: Totals::default(),
                },
                is_changed: false,
            });
        }
        Some(site)
    }

    fn stack(&mut self, head: &StackHead, frames: &[u64]) {
        let Some(entry) = self
            .processes
            .id(head.process)
            .and_then(|id| self.processes.get(id))
        else {
            return self.lost_one("unjoined");
        };
        let pid = entry.record.pid;
        let locations = frames
            .iter()
            .map(|address| self.location(pid, head.time, *address))
            .collect();
        let stack = Stack {
            locations,
            completeness: match head.walk {
                walk::TRUNCATED => Completeness::Truncated,
                // A walk along frame pointers can't tell an outermost frame from a missing link.
                _ => Completeness::Broken,
            },
        };
        let id = StackId(self.stacks.intern(&stack));
        self.sent_stacks.insert(head.id, id);
    }

    fn location(&mut self, pid: u32, time: u64, return_address: u64) -> LocationId {
        // The call stands before the address that it returns to.
        let address = return_address.saturating_sub(1);
        let location = match self.spaces.find(pid, time, address) {
            Some(span) => Location {
                module: Some(span.module),
                address: address - span.start + span.offset,
            },
            None => Location {
                module: None,
                address,
            },
        };
        LocationId(self.locations.intern(&location))
    }

    fn process_began(&mut self, event: &ProcessBegin) {
        let pid = event.tgid;
        if !self.spaces.knows(pid) {
            // Its birth was not recorded: it was there before.
            self.add_process(pid);
        }
        let mapped: Vec<&str> = self
            .spaces
            .modules(pid, event.time)
            .map(|module| self.modules.path(module))
            .collect();
        let allocators = self
            .allocators
            .iter()
            .filter(|allocator| mapped.contains(&allocator.path.as_str()))
            .cloned()
            .collect();
        let record = Process {
            pid,
            start_time_ns: event.start_time,
            command: processes::name(&event.comm),
            cgroup: processes::cgroup(pid),
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
        self.orphans.extend(entry.block_keys());
        entry.blocks = HashMap::new();
        let pid = entry.record.pid;
        let sites: Vec<SiteId> = entry.sites.values().copied().collect();
        self.processes.ended(pid, id);
        for site in sites {
            self.peak.clear(site.0);
        }
        if event.reason == end::EXIT {
            self.spaces.forget(pid, event.time);
        }
    }

    /// Takes in counters that the kernel program keeps of a process that goes on.
    pub fn set_process_counters(&mut self, serial: u64, failed: u64, untracked: u64) {
        if let Some(id) = self.processes.id(serial)
            && let Some(entry) = self.processes.change(id)
        {
            entry.record.failed_allocations = failed;
            entry.record.untracked_frees = untracked;
        }
    }

    /// Takes in how often something was lost before it came here.
    pub fn set_lost(&mut self, reason: &str, count: u64) {
        self.quality.lost.insert(reason.to_owned(), count);
    }

    /// Takes in how often something happened that cost nothing.
    pub fn set_noted(&mut self, kind: &str, count: u64) {
        self.quality.noted.insert(kind.to_owned(), count);
    }

    /// Takes in what the maps of the kernel program take.
    pub fn set_kernel_map_bytes(&mut self, bytes: u64) {
        self.quality.kernel_map_bytes = bytes;
    }

    /// Keys of blocks in the kernel's live map whose process is gone, once each.
    pub fn take_orphans(&mut self) -> Vec<BlockKey> {
        std::mem::take(&mut self.orphans)
    }

    /// Live blocks of processes that go on, as the live map should have them.
    pub fn live_blocks(&self) -> u64 {
        let entries = self.processes.entries.iter();
        entries.map(|entry| entry.blocks.len() as u64).sum()
    }

    /// What changed since the last call.
    pub fn take_update(&mut self, elapsed_ns: u64) -> Update {
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
                state.site.totals.peak_live_bytes = self.peak.at_peak(id.0);
                Some((id, state.site))
            })
            .collect();
        Update {
            elapsed_ns,
            modules: self.modules.take_new(),
            locations: self.locations.take_new(),
            stacks: self.stacks.take_new(),
            processes: self.processes.take_changed(),
            sites,
            totals: self.totals,
            quality: self.quality.clone(),
        }
    }

    /// The open files of modules.
    pub fn files(&self) -> &OpenFiles {
        self.modules.files()
    }

    /// The open files of modules, when everything is joined.
    pub fn into_files(self) -> OpenFiles {
        self.modules.into_files()
    }
}

/// Root folder of a process, as far as it can be named from here; empty for the agent's own.
fn root_of(pid: u32) -> String {
    match std::fs::read_link(format!("/proc/{pid}/root")) {
        Ok(root) if root != std::path::Path::new("/") => root.display().to_string(),
        _ => String::new(),
    }
}

/// Opens the file that a process has just mapped: by the mapping itself, or, where the process is
/// gone already, by its path, if it is still the same file.
fn open_mapped(pid: u32, mapped: &Mapped) -> Option<File> {
    if !mapped.path.starts_with('/') {
        return None;
    }
    let (start, end) = (mapped.start, mapped.end);
    File::open(format!("/proc/{pid}/map_files/{start:x}-{end:x}"))
        .ok()
        .or_else(|| {
            let file = File::open(&mapped.path).ok()?;
            let is_same = !mapped.build_id.is_empty() && elf::build_id(&file) == mapped.build_id;
            is_same.then_some(file)
        })
}
