//! Facts about a run beside its allocations: its quality, its sampling rates, and the sizes that were asked
//! for.
//!
//! Stage: join. Other stages and the kernel program report them; each update carries them.

use std::collections::BTreeSet;

use heaptrace_common::counters::Counter;
use heaptrace_common::wire::size_class;

use super::keyed_hash::HashMap;
use super::overhead::Overhead;
use super::reasons::{Loss, Note, broken_stack};
use super::sent_stack::{SentStack, completeness};
use super::update::{Completeness, Quality, RateChange, ShortLived};
use crate::reader::Unread;
use crate::sys::Usage;

/// Most changes of the sampling rate that a run lists.
const MAX_RATE_CHANGES: u32 = 1 << 16;

/// The facts up to now.
#[derive(Debug)]
pub(super) struct RunFacts {
    quality: Quality,
    /// Samples with a broken stack, by how the walk ended.
    broken_stacks: HashMap<u32, u64>,
    /// How often sizes of each class were asked for, of allocators.
    sizes: Vec<u64>,
    /// How often memory of each class was mapped. The kernel program does not count these: whether an allocator
    /// mapped it for its blocks shows only in the stack.
    mapped_sizes: Vec<u64>,
    /// Changes of the rate that were not handed out yet.
    rates: Vec<RateChange>,
    rates_listed: u32,
}

impl RunFacts {
    pub(super) fn new() -> Self {
        let mut facts = Self {
            quality: Quality::default(),
            broken_stacks: HashMap::default(),
            sizes: Vec::new(),
            mapped_sizes: Vec::new(),
            rates: Vec::new(),
            rates_listed: 0,
        };
        // Reports show these even if they never happen.
        facts.set_lost(Loss::Unjoined, 0);
        facts.set_lost(Loss::SweptLive, 0);
        facts
    }

    pub(super) fn lost_one(&mut self, reason: Loss) {
        *self.lost(reason.name()) += 1;
    }

    pub(super) fn set_lost(&mut self, reason: Loss, count: u64) {
        *self.lost(reason.name()) = count;
    }

    pub(super) fn note_one(&mut self, kind: Note) {
        *self.noted(kind.name()) += 1;
    }

    pub(super) fn set_noted(&mut self, kind: Note, count: u64) {
        *self.noted(kind.name()) = count;
    }

    /// Whether calls of processes that were traced from their beginning may be missing; it is not known of which.
    pub(super) fn may_lack_calls(&self) -> bool {
        let lost = [
            Loss::Files,
            Loss::MappingsFull,
            Loss::ProcessesUnreached,
            Loss::Undecoded,
            Loss::Unjoined,
            Loss::Unread,
        ];
        let late = Note::AllocatorsProbedLate.name();
        let is_set = |count: Option<&u64>| count.is_some_and(|it| *it > 0);
        is_set(self.quality.noted.get(late))
            || lost
                .iter()
                .any(|it| is_set(self.quality.lost.get(it.name())))
    }

    /// Takes over a counter of the kernel program.
    pub(super) fn set_counter(&mut self, counter: Counter, count: u64) {
        if counter.is_loss() {
            *self.lost(counter.name()) = count;
        } else {
            *self.noted(counter.name()) = count;
        }
    }

    fn lost(&mut self, name: &str) -> &mut u64 {
        self.quality.lost.entry(name.to_owned()).or_default()
    }

    fn noted(&mut self, name: &str) -> &mut u64 {
        self.quality.noted.entry(name.to_owned()).or_default()
    }

    /// Counts a sample, by how far its stack goes.
    pub(super) fn count_sample(&mut self, stack: &SentStack) {
        match completeness(stack.walk()) {
            Completeness::Complete => self.quality.stacks_complete += 1,
            Completeness::Truncated => self.quality.stacks_truncated += 1,
            Completeness::Broken => {
                self.quality.stacks_broken += 1;
                *self.broken_stacks.entry(stack.walk()).or_default() += 1;
            }
        }
        self.quality.samples += 1;
    }

    pub(super) fn rate_changed(&mut self, change: RateChange) {
        if self.rates_listed < MAX_RATE_CHANGES {
            self.rates_listed += 1;
            self.rates.push(change);
        } else {
            self.note_one(Note::RateChangesUnlisted);
        }
    }

    pub(super) fn take_rates(&mut self) -> Vec<RateChange> {
        std::mem::take(&mut self.rates)
    }

    pub(super) fn set_sizes(&mut self, sizes: Vec<u64>) {
        self.sizes = sizes;
    }

    /// Counts memory that a program mapped itself.
    pub(super) fn count_mapping(&mut self, size: u64) {
        let class = size_class(size) as usize;
        if class >= self.mapped_sizes.len() {
            self.mapped_sizes.resize(class + 1, 0);
        }
        if let Some(calls) = self.mapped_sizes.get_mut(class) {
            *calls += 1;
        }
    }

    /// How often sizes of each class were asked for, of allocators and of the kernel.
    pub(super) fn sizes(&self) -> Vec<u64> {
        let classes = self.sizes.len().max(self.mapped_sizes.len());
        let calls = |counts: &[u64], class: usize| counts.get(class).copied().unwrap_or(0);
        (0..classes)
            .map(|class| calls(&self.sizes, class) + calls(&self.mapped_sizes, class))
            .collect()
    }

    pub(super) fn set_kernel_map_bytes(&mut self, bytes: u64) {
        self.quality.kernel_map_bytes = bytes;
    }

    pub(super) fn set_agent_usage(&mut self, usage: Usage) {
        self.quality.agent_cpu_ns = usage.cpu_ns;
        let peak = &mut self.quality.agent_peak_bytes;
        *peak = usage.peak_bytes.max(*peak);
    }

    pub(super) fn set_overhead(&mut self, overhead: Overhead) {
        self.quality.overhead = overhead;
    }

    pub(super) fn set_unreadable(&mut self, unread: Unread) {
        self.set_noted(Note::FilesUnreadable, unread.count);
        let files = unread.files.into_iter();
        self.quality.unreadable = files.map(|(file, why)| format!("{file}: {why}")).collect();
    }

    /// Sets how many processes ended before they were reached, and the most frequent ones of them.
    pub(super) fn set_short_lived(&mut self, all: u64, named: Vec<ShortLived>) {
        self.set_noted(Note::ProcessesShortLived, all);
        self.quality.short_lived = named;
    }

    pub(super) fn set_without_tables(&mut self, files: BTreeSet<String>) {
        self.quality.without_tables = files;
    }

    pub(super) fn set_unprobed(&mut self, unprobed: &BTreeSet<String>) {
        self.quality.unprobed.clone_from(unprobed);
    }

    pub(super) fn set_calls(&mut self, untracked_frees: u64, failed_allocations: u64) {
        self.quality.untracked_frees = untracked_frees;
        self.quality.failed_allocations = failed_allocations;
    }

    /// The quality up to now.
    pub(super) fn quality(&self) -> Quality {
        let mut quality = self.quality.clone();
        for (walk, count) in &self.broken_stacks {
            *quality.noted.entry(broken_stack(*walk)).or_default() += count;
        }
        quality
    }
}
