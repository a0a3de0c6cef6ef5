//! Facts of a run that come from elsewhere: losses, counters, settings and costs.
//!
//! Stage: join. The joiner only keeps them for the next update.

use std::collections::BTreeSet;

use heaptrace_common::counters::Counter;

use super::Joiner;
use crate::join::marks::MarkCause;
use crate::join::overhead::Overhead;
use crate::join::reasons::{Loss, Note};
use crate::join::update::RateChange;
use crate::reader::Unread;
use crate::sys::Usage;

impl Joiner {
    /// Counts how sites use their blocks, from now on: sizes, lifetimes and more.
    pub fn record_usage(&mut self) {
        self.ledger.count_usages();
    }

    /// Hands out everything with the next update, because it is the last one.
    pub fn send_all(&mut self) {
        self.ledger.send_all_usages();
    }

    /// Counts temporary blocks as heaptrack does, from now on. All calls have to be recorded.
    pub fn follow_calls(&mut self) {
        self.ledger.follow_calls();
    }

    /// The number of recorded live blocks.
    pub fn live_blocks(&self) -> usize {
        self.ledger.processes().live_blocks()
    }

    /// Adds a mark: what is allocated from now on is a generation of its own. The time is on the monotonic clock.
    pub fn mark(&mut self, cause: MarkCause, at_ns: u64, time: u64) {
        self.ledger.mark(cause, at_ns, time);
    }

    /// Counts a loss.
    pub fn lost_one(&mut self, reason: Loss) {
        self.facts.lost_one(reason);
    }

    /// Sets how often something was lost.
    pub fn set_lost(&mut self, reason: Loss, count: u64) {
        self.facts.set_lost(reason, count);
    }

    /// Counts an event that is worth knowing.
    pub fn note_one(&mut self, kind: Note) {
        self.facts.note_one(kind);
    }

    /// Sets how often an event happened that is worth knowing.
    pub fn set_noted(&mut self, kind: Note, count: u64) {
        self.facts.set_noted(kind, count);
    }

    /// Sets a counter of the kernel program.
    pub fn set_counter(&mut self, counter: Counter, count: u64) {
        self.facts.set_counter(counter, count);
    }

    /// Records a change of the sampling rate.
    pub fn rate_changed(&mut self, change: RateChange) {
        self.facts.rate_changed(change);
    }

    /// Sets how often sizes of each class were asked for.
    pub fn set_sizes(&mut self, sizes: Vec<u64>) {
        self.facts.set_sizes(sizes);
    }

    /// Sets the memory that the maps of the kernel program use.
    pub fn set_kernel_map_bytes(&mut self, bytes: u64) {
        self.facts.set_kernel_map_bytes(bytes);
    }

    /// Sets the processor time and the memory that the agent itself has used. The largest memory so far counts.
    pub fn set_agent_usage(&mut self, usage: Usage) {
        self.facts.set_agent_usage(usage);
    }

    /// Sets what the probes cost the traced processes.
    pub fn set_overhead(&mut self, overhead: Overhead) {
        self.facts.set_overhead(overhead);
    }

    /// Sets the files that no reader could read.
    pub fn set_unreadable(&mut self, unread: Unread) {
        self.facts.set_unreadable(unread);
    }

    /// Sets the files for whose unwind tables there was no room.
    pub fn set_without_tables(&mut self, files: BTreeSet<String>) {
        self.facts.set_without_tables(files);
    }
}
