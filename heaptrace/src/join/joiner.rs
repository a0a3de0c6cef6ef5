//! The join: it takes events in, and hands out updates.
//!
//! Stage: join. This type only passes each event to the parts that it concerns. Everything that arrives in
//! one call is complete: the sideband has been read up to after the last event, so mappings are known before
//! the stacks in them. Knows nothing of the kernel's maps but the keys of blocks and stacks.

mod ahead;
mod blocks;
mod code;
mod coverage;
mod ends;
mod facts;
mod java;
mod javascript;
mod jit;
mod limits;
mod python;
mod reachability;

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use heaptrace_common::wire::{
    Alloc, BlockKey, MapChange, ProcessState, StackHead, StackKey, Unmapped, flag, map_flag,
};

use super::addresses::{Addresses, Follow};
use super::cgroups::Cgroups;
use super::command_line;
use super::coverage::Coverage;
use super::duty_cycle::PausedProcesses;
use super::earlier::Earlier;
use super::ledger::Ledger;
use super::live_limits::LiveLimits;
use super::mappings::Mappings;
use super::marks::Exceeded;
use super::memory_groups::MemoryGroups;
use super::merge_ended::{EndedLimits, EndedProcesses};
use super::modules::OpenFiles;
use super::orphans::Orphans;
use super::process::Sampled;
use super::processes;
use super::reachability::Reachability;
use super::reasons::{Loss, Note};
use super::run_facts::RunFacts;
use super::sent_stack::SentStack;
use super::sites::SiteOrigin;
use super::stacks::Stacks;
use super::threads::{self, Threads};
use super::update::{
    Allocator, Kind, Memory, ModuleId, Process, ProcessId, SiteId, ThreadNameId, Update,
};
use crate::events::record::Event;
use crate::events::sideband::{Change, SideEvent};
use crate::open::{Expected, FileId};
use crate::proc::build_id::Build;
use crate::proc::group_text::GroupText;
use crate::proc::memory;

pub use blocks::RunningImage;
pub use jit::GeneratedCode;

/// Joins the events of a run.
#[derive(Debug)]
pub struct Joiner {
    ledger: Ledger,
    addresses: Addresses,
    stacks: Stacks,
    mappings: Mappings,
    records_mappings: bool,
    /// Names of threads, if each name has sites of its own.
    threads: Option<Threads>,
    cgroups: Cgroups,
    memory_groups: MemoryGroups,
    paused: PausedProcesses,
    ending: Vec<ProcessId>,
    ended: EndedProcesses,
    /// When the run began, on the monotonic clock.
    began: u64,
    /// Whether a process ended suddenly since the last question.
    had_sudden_end: bool,
    live_limits: Option<LiveLimits>,
    /// Exceeded limits that were not handed out yet, and how many the run lists.
    exceeded: Vec<Exceeded>,
    listed_exceeded: usize,
    earlier: Earlier,
    coverage: Coverage,
    orphans: Orphans,
    facts: RunFacts,
    /// What was found since the last update.
    reachability: Vec<Reachability>,
}

impl Joiner {
    /// A join without events.
    pub fn new(follow: Follow, limits: EndedLimits) -> Self {
        Self {
            ledger: Ledger::default(),
            addresses: Addresses::new(follow),
            stacks: Stacks::default(),
            mappings: Mappings::default(),
            records_mappings: false,
            threads: None,
            cgroups: Cgroups::default(),
            memory_groups: MemoryGroups::default(),
            paused: PausedProcesses::default(),
            ending: Vec::new(),
            ended: EndedProcesses::new(limits),
            began: 0,
            had_sudden_end: false,
            live_limits: None,
            exceeded: Vec::new(),
            listed_exceeded: 0,
            earlier: Earlier::default(),
            coverage: Coverage::default(),
            orphans: Orphans::default(),
            facts: RunFacts::new(),
            reachability: Vec::new(),
        }
    }

    /// Gives threads of different names sites of their own, from now on.
    pub fn separate_threads(&mut self) {
        self.threads = Some(Threads::new());
    }

    /// Records mapped memory, from now on.
    pub fn record_mappings(&mut self) {
        self.records_mappings = true;
        self.facts.set_lost(Loss::MappingsFull, 0);
    }

    /// Adds a running process to the reports, also if it never allocates.
    pub fn add_target(&mut self, pid: u32) {
        let command = processes::name_of(pid);
        let before = memory::resident(pid).unwrap_or_default();
        self.ledger.add_silent(Process {
            pid,
            command_line: command_line::of(pid, &command),
            command,
            cgroup: self.cgroups.of(&mut GroupText::of(pid), 0),
            memory: Memory {
                resident: before.now,
                peak_resident: before.peak,
                resident_before: before.now,
            },
            ..Process::default()
        });
    }

    /// Brings the resident memory of running processes up to date.
    pub fn measure_memory(&mut self) {
        self.ledger.measure(memory::resident);
    }

    /// Sets the process that heaptrace started, and the path of its program.
    pub fn set_launched(&mut self, pid: u32, path: PathBuf) {
        self.addresses.set_launched(pid, path);
    }

    /// Adds a running process, with its mappings.
    pub fn add_process(&mut self, pid: u32) {
        self.addresses.add_process(pid);
    }

    /// Whether a process was added, or descends from one that was.
    pub fn follows(&self, pid: u32) -> bool {
        self.addresses.follows(pid)
    }

    /// Whether a process is of interest.
    pub fn knows(&self, pid: u32) -> bool {
        self.addresses.knows(pid)
    }

    /// Whether a process is of interest, or may turn out to be.
    pub fn may_know(&self, pid: u32) -> bool {
        self.addresses.may_know(pid) || self.coverage.has(pid)
    }

    /// The processes of interest, including ended ones whose events may still arrive.
    pub fn followed(&self) -> Vec<u32> {
        self.addresses.followed()
    }

    /// Joins an event of the sideband.
    pub fn sideband(&mut self, event: SideEvent) {
        match event.change {
            Change::Exec { .. } => {
                self.earlier.exec(event.pid);
                self.coverage.exec(event.pid, event.time);
            }
            Change::Exited => {
                self.earlier.exited(event.pid);
                self.ledger.end_silent(event.pid);
            }
            Change::Forked { .. } | Change::Mapped(_) => {}
        }
        self.addresses.sideband(event);
    }

    /// Forgets the mappings of processes that ended before a time up to which all events have arrived.
    pub fn settle(&mut self, until: u64) {
        let processes = self.ledger.processes();
        self.addresses
            .settle(until, |pid| processes.is_running(pid));
        self.coverage.settle(until);
    }

    /// Joins an event of the kernel program.
    pub fn event(&mut self, event: Event) {
        match event {
            Event::Alloc(event) => self.allocated(&event),
            Event::Free(event) => {
                let fresh = event.flags & flag::TEMPORARY != 0;
                let by = Some((&event).into());
                self.ledger.block_freed(event.process, event.id, fresh, by);
            }
            Event::MapChange(event) => self.mapping_changed(&event),
            Event::Stack(head, frames) => self.stack(&head, &frames),
            Event::ProcessBegin(event) => {
                let record = self.read_process(&event);
                self.begin_process(&event, record);
            }
            Event::ProcessEnd(event) => self.process_ended(&event),
            Event::PythonCode(event) => self.python_code(*event),
            Event::PythonFrames(event) => self.python_frames(&event),
            Event::V8Frames(event) => {
                let read = self.read_javascript(&event);
                self.javascript_frames(&read);
            }
            Event::NamedJavaFrames(event) => self.java_frames(&event),
            // The session answers requests, names Java frames, and completes stacks by raw ones.
            Event::NeedTable(_) | Event::NeedJvm(_) | Event::JavaFrames(_) | Event::RawStack(_) => {
            }
        }
    }

    /// Joins the free of a block whose event was lost, as the live map has it.
    pub fn swept(&mut self, process: u64, id: u64) {
        self.ledger.block_freed(process, id, false, None);
    }

    /// Joins an unmapping whose event was lost.
    pub fn unmapped(&mut self, it: &Unmapped) {
        if let Some(process) = self.ledger.processes().id(it.process) {
            self.mappings.unmapped(process, it, &mut self.ledger);
        }
    }

    fn allocated(&mut self, event: &Alloc) {
        let Some(process) = self.ledger.processes().id(event.process) else {
            return self.lost_one(Loss::Unjoined);
        };
        let Some(sent) = self.sent_stack(process, event.stack, event.time) else {
            return self.lost_one(Loss::Unjoined);
        };
        let fresh = event.flags & flag::TEMPORARY != 0;
        if event.replaced != 0 {
            self.ledger
                .block_freed(event.process, event.replaced, false, None);
        }
        let mut old = None;
        if event.freed != 0 {
            let by = Some(event.into());
            old = self
                .ledger
                .block_freed(event.process, event.freed, fresh, by);
        }
        let Some(site) = self.site_of_block(process, &sent, event) else {
            return;
        };
        self.facts.count_sample(&sent);
        self.ledger.allocated(process, site, event, old.as_ref());
    }

    fn site_of_block(
        &mut self,
        process: ProcessId,
        sent: &SentStack,
        event: &Alloc,
    ) -> Option<SiteId> {
        if sent.site.is_some() {
            return sent.site;
        }
        let thread = self.thread(process, event.process, event.tid, event.time);
        let site = self.ledger.site(SiteOrigin {
            process,
            stack: sent.stack,
            thread,
            kind: Kind::Heap,
        })?;
        if self.threads.is_none() {
            self.ledger.set_site_of_stack(process, event.stack, site);
        }
        Some(site)
    }

    fn mapping_changed(&mut self, event: &MapChange) {
        let Some(process) = self.ledger.processes().id(event.process) else {
            if event.flags & map_flag::RECORDED != 0 {
                self.lost_one(Loss::Unjoined);
            }
            return;
        };
        if !self.mappings.change(process, event, &mut self.ledger) {
            return;
        }
        let Some(sent) = self.sent_stack(process, event.stack, event.entered) else {
            return self.lost_one(Loss::Unjoined);
        };
        if sent.is_allocators {
            return;
        }
        if self.mappings.is_full() {
            return self.lost_one(Loss::MappingsFull);
        }
        let thread = self.thread(process, event.process, event.tid, event.time);
        let site = self.ledger.site(SiteOrigin {
            process,
            stack: sent.stack,
            thread,
            kind: Kind::Mapped,
        });
        if let Some(site) = site {
            self.facts.count_sample(&sent);
            self.facts.count_mapping(event.length);
            self.mappings.add(process, site, event, &mut self.ledger);
        }
    }

    /// The name of a thread, if names are asked for.
    fn thread(
        &mut self,
        process: ProcessId,
        serial: u64,
        tid: u32,
        time: u64,
    ) -> Option<ThreadNameId> {
        let threads = self.threads.as_mut()?;
        let pid = self.ledger.processes().get(process)?.record().pid;
        threads.name(serial, tid, time, || threads::read_name(pid, tid))
    }

    fn stack(&mut self, head: &StackHead, frames: &[u64]) {
        let Self {
            stacks,
            ledger,
            addresses,
            orphans,
            ..
        } = self;
        if !stacks.add(head, frames, ledger, addresses, orphans) {
            self.lost_one(Loss::Unjoined);
        }
    }

    /// A stack as it is at a time.
    fn sent_stack(&mut self, process: ProcessId, id: u64, time: u64) -> Option<SentStack> {
        let Self {
            stacks,
            ledger,
            addresses,
            ..
        } = self;
        stacks.at(process, id, time, ledger, addresses)
    }

    /// Adds an allocator that is probed, with its file.
    pub fn add_allocator(&mut self, allocator: Allocator, file: FileId) {
        self.addresses.add_allocator(allocator, file);
    }

    /// Adds the code in a file that belongs to an allocator, and maps memory for its blocks.
    pub fn add_own_code(&mut self, path: String, file: FileId, ranges: Vec<(u64, u64)>) {
        if self.records_mappings {
            self.addresses.add_own_code(path, file, ranges);
        }
    }

    /// Adds an allocator that is not probed, with the reason.
    pub fn add_unprobed(&mut self, what: String) {
        self.addresses.add_unprobed(what);
    }

    /// The allocators that could not be probed up to now.
    pub fn unprobed(&self) -> impl Iterator<Item = &str> {
        self.addresses.unprobed().iter().map(String::as_str)
    }

    /// Whether a file is probed, by the kernel's numbers of it.
    pub fn is_probed(&self, file: &Expected) -> bool {
        self.addresses.is_probed(file)
    }

    /// The new modules that need to be identified, with their paths and files.
    pub fn take_unidentified(&mut self) -> Vec<(ModuleId, String, Arc<File>)> {
        self.addresses.take_unidentified()
    }

    /// Sets the build of a module that no update has handed out yet.
    pub fn identify(&mut self, module: ModuleId, build: Build) {
        self.addresses.identify(module, build);
    }

    /// The open files of modules.
    pub fn files(&self) -> &OpenFiles {
        self.addresses.files()
    }

    /// The open files of modules, when everything is joined.
    pub fn into_files(self) -> OpenFiles {
        self.addresses.into_files()
    }

    /// Sets the counters that the kernel program keeps of a running process.
    pub fn set_process_counters(&mut self, state: &ProcessState) {
        self.ledger.set_counters(state);
    }

    /// The samples that arrived since the last call, by process.
    pub fn take_sampled(&mut self) -> Vec<Sampled> {
        self.ledger.take_sampled()
    }

    /// Keys of blocks in the kernel's live map whose process is gone, each once.
    pub fn take_orphans(&mut self) -> impl Iterator<Item = BlockKey> + use<> {
        self.orphans.take_blocks()
    }

    /// Keys of stacks in the kernel's map whose process is gone.
    pub fn take_orphan_stacks(&mut self) -> Vec<StackKey> {
        self.orphans.take_stacks()
    }

    /// The changes since the last call.
    pub fn take_update(&mut self, elapsed_ns: u64) -> Update {
        self.paused.count_time(&mut self.ledger, elapsed_ns);
        let records = || self.ledger.processes().records();
        self.facts.set_calls(
            records().map(|record| record.untracked_frees).sum(),
            records().map(|record| record.failed_allocations).sum(),
        );
        self.facts.set_unprobed(self.addresses.unprobed());
        let not_kept = self.addresses.mappings_not_kept();
        self.facts.set_noted(Note::CodeMappingsNotKept, not_kept);
        for (note, count) in self.stacks.lacks() {
            self.facts.set_noted(note, count);
        }
        self.note_generated_code();
        self.note_without_room();
        let sites = self.ledger.take_changed_sites();
        let (modules, locations) = self.addresses.take_new();
        let started = self.addresses.take_started();
        let threads = self.threads.as_mut().map(Threads::take_new);
        Update {
            elapsed_ns,
            modules,
            started,
            functions: self.stacks.take_new_functions(),
            locations,
            stacks: self.stacks.take_new(),
            threads: threads.unwrap_or_default(),
            processes: self.ledger.take_changed_processes(),
            sites,
            usages: self.ledger.take_usages(),
            marks: self.ledger.take_marks(),
            exceeded: self.take_exceeded(),
            generations: self.ledger.take_changed_generations(),
            blocks: self.ledger.take_block_changes(elapsed_ns),
            live_blocks: None,
            reachability: std::mem::take(&mut self.reachability),
            sizes: self.facts.sizes(),
            rates: self.facts.take_rates(),
            totals: self.ledger.totals(),
            quality: self.facts.quality(),
        }
    }
}
