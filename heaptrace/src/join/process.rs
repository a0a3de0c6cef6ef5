//! One process of a run: its record, its sums, its live blocks, its stacks and its sites.
//!
//! Stage: join. Knows nothing of other processes, nor of the sums of sites.

use heaptrace_common::wire::{Alloc, ProcessBegin, ProcessEnd, ProcessState, StackKey};

use super::blocks::{Block, Blocks};
use super::end::{End, KilledAt};
use super::estimate::{Amount, Sums};
use super::generations::Owner;
use super::keyed_hash::HashMap;
use super::own_peaks::ChangedSites;
use super::sent_stack::{Sent, SentStack};
use super::update::{DutyCycle, Kind, Process, ProcessId, SiteId, StackId, ThreadNameId};
use crate::proc::memory::Resident;
use crate::sys;

/// The samples of a process that arrived since the last question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampled {
    /// The process.
    pub process: ProcessId,
    /// Its process id in the system.
    pub pid: u32,
    /// How many samples arrived.
    pub samples: u64,
    /// How many of all its samples are live blocks.
    pub live_blocks: usize,
    /// Whether this is the first answer about the process.
    pub is_new: bool,
    /// Whether it has ended.
    pub ended: bool,
}

/// What tells the sites of a process apart, packed: there can be millions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SiteKey(u64);

impl SiteKey {
    pub(super) fn new(stack: StackId, thread: Option<ThreadNameId>, kind: Kind) -> Self {
        let thread = thread.map_or(0, |thread| u64::from(thread.0) + 1);
        Self((u64::from(stack.0) << 32) | (thread << 1) | u64::from(kind == Kind::Mapped))
    }

    fn stack(self) -> StackId {
        StackId((self.0 >> 32) as u32)
    }

    fn with_stack(self, stack: StackId) -> Self {
        Self(u64::from(stack.0) << 32 | self.0 & u64::from(u32::MAX))
    }
}

/// What an ended process leaves in the maps of the kernel program.
#[derive(Debug)]
pub(super) struct Leftovers {
    pub(super) serial: u64,
    pub(super) blocks: Blocks,
    pub(super) stacks: Vec<StackKey>,
}

/// A process and everything that belongs to it alone.
#[derive(Debug)]
pub(super) struct ProcessEntry {
    /// The number that events carry; 0 if the record stands for many processes.
    serial: u64,
    record: Process,
    sums: Sums,
    /// The most bytes that were certainly live at a time.
    peak: Amount,
    changed_since_peak: ChangedSites,
    blocks: Blocks,
    /// Keys of its stacks in the kernel's map.
    stack_keys: Vec<StackKey>,
    /// Its stacks, by the ids of the kernel program.
    sent: HashMap<u64, Sent>,
    sites: HashMap<SiteKey, SiteId>,
    is_changed: bool,
    /// How many times it has been paused.
    pauses: u32,
    /// When it was last paused, on the monotonic clock.
    paused_at: u64,
    /// Samples since the last [`Sampled`], and whether there was one.
    samples: u64,
    was_reported: bool,
}

impl ProcessEntry {
    pub(super) fn new(serial: u64, record: Process) -> Self {
        Self {
            serial,
            record,
            sums: Sums::default(),
            peak: Amount::default(),
            changed_since_peak: ChangedSites::default(),
            blocks: Blocks::default(),
            stack_keys: Vec::new(),
            sent: HashMap::default(),
            sites: HashMap::default(),
            is_changed: true,
            pauses: 0,
            paused_at: 0,
            samples: 0,
            was_reported: false,
        }
    }

    /// A slot of the table without a process.
    pub(super) fn vacant() -> Self {
        Self::new(0, Process::vacant())
    }

    pub(super) fn serial(&self) -> u64 {
        self.serial
    }

    pub(super) fn record(&self) -> &Process {
        &self.record
    }

    /// Marks the process as changed. Returns whether it was not marked before.
    pub(super) fn mark_changed(&mut self) -> bool {
        !std::mem::replace(&mut self.is_changed, true)
    }

    /// The record with its totals, which is not marked as changed any more.
    pub(super) fn take_changed(&mut self) -> Process {
        self.is_changed = false;
        self.record.totals = self.sums.totals(&self.peak);
        self.record.clone()
    }

    /// Counts a sample. Returns whether it is the first one since the last [`Sampled`].
    pub(super) fn count_sample(&mut self) -> bool {
        self.samples += 1;
        self.samples == 1
    }

    pub(super) fn take_sampled(&mut self, process: ProcessId) -> Sampled {
        Sampled {
            process,
            pid: self.record.pid,
            samples: std::mem::take(&mut self.samples),
            live_blocks: self.blocks.len(),
            is_new: !std::mem::replace(&mut self.was_reported, true),
            ended: self.record.ended,
        }
    }

    /// A stack, by the id of the kernel program.
    pub(super) fn sent(&self, id: u64) -> Option<&Sent> {
        self.sent.get(&id)
    }

    /// Adds a stack. Returns its key in the kernel's map if the process has ended, for then nothing else
    /// removes it.
    pub(super) fn add_stack(&mut self, id: u64, key: StackKey, sent: Sent) -> Option<StackKey> {
        self.sent.insert(id, sent);
        if self.record.ended {
            return Some(key);
        }
        self.stack_keys.push(key);
        None
    }

    /// Sets what a stack means from a time on.
    pub(super) fn set_stack(&mut self, id: u64, stack: SentStack, time: u64) {
        if let Some(sent) = self.sent.get_mut(&id) {
            sent.stack = stack;
            sent.time = time;
        }
    }

    /// Remembers the site of all blocks of a stack.
    pub(super) fn set_site_of_stack(&mut self, id: u64, site: SiteId) {
        if let Some(sent) = self.sent.get_mut(&id) {
            sent.stack.site = Some(site);
        }
    }

    /// The site with a key; `add` makes it if there is none.
    pub(super) fn site(&mut self, key: SiteKey, add: impl FnOnce() -> SiteId) -> SiteId {
        *self.sites.entry(key).or_insert_with(add)
    }

    /// Gives its sites other stacks, and returns these sites. Two sites can have the same stack then.
    pub(super) fn rename_stacks(
        &mut self,
        renamed: &HashMap<StackId, StackId>,
    ) -> Vec<(SiteId, StackId)> {
        let sites = self.sites.iter();
        let found: Vec<_> = sites
            .filter_map(|(key, site)| Some((*key, *site, *renamed.get(&key.stack())?)))
            .collect();
        for (key, site, stack) in &found {
            let new = key.with_stack(*stack);
            // Otherwise it keeps its key, which no stack has any more.
            if !self.sites.contains_key(&new) {
                self.sites.remove(key);
                self.sites.insert(new, *site);
            }
        }
        found
            .into_iter()
            .map(|(_, site, stack)| (site, stack))
            .collect()
    }

    pub(super) fn sites(&self) -> impl ExactSizeIterator<Item = SiteId> {
        self.sites.values().copied()
    }

    pub(super) fn take_sites(&mut self) -> impl Iterator<Item = (SiteKey, SiteId)> + use<> {
        std::mem::take(&mut self.sites).into_iter()
    }

    /// Whether the end of memory that was allocated at a time is certain to be seen.
    pub(super) fn is_certain(&self, time: u64) -> bool {
        time >= self.paused_at
    }

    /// Adds a block, and returns it.
    pub(super) fn add_block(&mut self, owner: Owner, event: &Alloc) -> Block {
        // A block from before the last pause belongs to the time before it, even if its event is late.
        let is_late = !self.is_certain(event.time);
        let block = Block {
            site: owner.site,
            address: event.address,
            size: event.size,
            mean: event.mean,
            pauses: self.pauses - u32::from(is_late),
            time: event.time,
            tid: event.tid,
            is_reallocated: event.freed != 0,
            mark: owner.mark,
        };
        self.blocks.insert(event.id, block);
        block
    }

    /// Takes a block out. The other value is whether it was certainly live, so that no pause came in between.
    pub(super) fn take_block(&mut self, id: u64) -> Option<(Block, bool)> {
        let block = self.blocks.remove(id)?;
        Some((block, block.pauses == self.pauses))
    }

    /// Its live blocks with their ids, in no order.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (u64, Block)> {
        self.blocks.iter()
    }

    pub(super) fn change_sums(&mut self, change: impl FnOnce(&mut Sums)) {
        change(&mut self.sums);
    }

    /// Raises the peak to what is certainly live, if that is more. Returns whether it was.
    pub(super) fn raise_peak(&mut self) -> bool {
        let live = self.sums.live().bytes;
        let is_higher = self.peak.is_below(&live);
        if is_higher {
            self.peak = live;
        }
        is_higher
    }

    /// The most bytes that were certainly live at a time.
    pub(super) fn peak(&self) -> &Amount {
        &self.peak
    }

    /// The sites that changed since the peak.
    pub(super) fn changed_since_peak(&mut self) -> &mut ChangedSites {
        &mut self.changed_since_peak
    }

    /// Starts a pause.
    pub(super) fn pause(&mut self, overhead: u32, elapsed_ns: u64, time: u64) {
        let duty_cycle = self.record.duty_cycle.get_or_insert(DutyCycle {
            from_ns: elapsed_ns,
            ..DutyCycle::default()
        });
        duty_cycle.overhead = duty_cycle.overhead.max(overhead);
        self.pauses += 1;
        self.paused_at = time;
    }

    pub(super) fn set_reached(&mut self, reached: u32) {
        if let Some(duty_cycle) = &mut self.record.duty_cycle {
            duty_cycle.reached = reached;
        }
    }

    pub(super) fn add_unprobed_time(&mut self, ns: u64) {
        if let Some(duty_cycle) = &mut self.record.duty_cycle {
            duty_cycle.unprobed_ns += ns;
        }
    }

    /// Takes over the counters that the kernel program keeps of a running process.
    pub(super) fn set_counters(&mut self, state: &ProcessState) {
        self.record.failed_allocations = state.failed;
        self.record.untracked_frees = state.untracked;
        self.record.lost = state.lost;
    }

    /// Whether the kernel counts notably more or less resident memory than the record has. Small changes would
    /// only make every update longer.
    pub(super) fn is_outdated(&self, now: Resident) -> bool {
        let memory = &self.record.memory;
        let is_far = |a: u64, b: u64| a.abs_diff(b) > (a >> 7).max(64 << 10);
        is_far(memory.resident, now.now) || is_far(memory.peak_resident, now.peak)
    }

    /// Sets the resident memory of the process.
    pub(super) fn set_resident(&mut self, now: Resident) {
        self.record.memory.resident = now.now;
        self.record.memory.peak_resident = now.peak;
    }

    /// Sets the serial number of a process that was added before its first event.
    pub(super) fn begin(&mut self, event: &ProcessBegin, record: Process) {
        self.serial = event.process;
        self.record = Process {
            memory: self.record.memory,
            ..record
        };
    }

    /// Ends the process. Its sites and sums stay. Its blocks and stacks stay until it is closed.
    pub(super) fn end(&mut self, event: &ProcessEnd) {
        self.record.ended = true;
        self.record.failed_allocations = event.failed;
        self.record.untracked_frees = event.untracked;
        self.record.lost = event.lost;
        let memory = &mut self.record.memory;
        memory.resident = 0;
        let peak = event.peak_pages.saturating_mul(sys::page_size() as u64);
        memory.peak_resident = memory.peak_resident.max(peak);
    }

    /// Sets how it ended, and until when it was traced, if it is known from when on.
    pub(super) fn set_end(&mut self, end: End, killed_at: Option<KilledAt>) {
        self.record.end = Some(end);
        self.record.killed_at = killed_at;
        if let Some(traced) = &mut self.record.traced {
            traced.to_ns = Some(end.at_ns);
        }
    }

    /// The bytes that are certainly live.
    pub(super) fn live_bytes(&self) -> u64 {
        self.sums.live().bytes.rounded()
    }

    /// A live block, by its id.
    pub(super) fn block(&self, id: u64) -> Option<Block> {
        self.blocks.get(id)
    }

    /// The number of its live blocks that were recorded.
    pub(super) fn live_blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Takes what the process has left: no more events of it will be joined.
    pub(super) fn close(&mut self) -> Leftovers {
        self.sent = HashMap::default();
        Leftovers {
            serial: self.serial,
            blocks: std::mem::take(&mut self.blocks),
            stacks: std::mem::take(&mut self.stack_keys),
        }
    }

    /// Ends a process that had no event.
    pub(super) fn end_silent(&mut self) {
        self.record.ended = true;
        self.record.memory.resident = 0;
    }

    /// Adds the sums and counters of an ended process to a record of many.
    pub(super) fn merge(&mut self, ended: Self) {
        self.sums.merge(&ended.sums);
        // Peaks of several processes don't add up: the highest one is kept.
        if self.peak.is_below(&ended.peak) {
            self.peak = ended.peak;
        }
        let (record, other) = (&mut self.record, ended.record);
        record.untracked_frees += other.untracked_frees;
        record.failed_allocations += other.failed_allocations;
        record.lost += other.lost;
        record.merged += 1;
        let peak = &mut record.memory.peak_resident;
        *peak = (*peak).max(other.memory.peak_resident);
        if let Some(duty_cycle) = other.duty_cycle {
            let sum = record.duty_cycle.get_or_insert(DutyCycle {
                unprobed_ns: 0,
                ..duty_cycle
            });
            sum.unprobed_ns += duty_cycle.unprobed_ns;
            sum.overhead = sum.overhead.max(duty_cycle.overhead);
            sum.reached = sum.reached.max(duty_cycle.reached);
        }
        for allocator in other.allocators {
            if !record.allocators.contains(&allocator) {
                record.allocators.push(allocator);
            }
        }
    }
}
