//! What is known of a run's quality from elsewhere: counters of the kernel's, and of other stages.
//!
//! Stage: join. Kept with what is joined, so that each update tells of both.

use std::collections::BTreeSet;

use heaptrace_common::wire::ProcessState;

use super::{Joiner, MAX_RATE_CHANGES};
use crate::join::update::RateChange;
use crate::reader::Unread;
use crate::sys::Usage;

impl Joiner {
    /// Takes in counters that the kernel program keeps of a process that goes on.
    pub fn set_process_counters(&mut self, state: &ProcessState) {
        if let Some(id) = self.processes.id(state.process)
            && let Some(entry) = self.processes.change(id)
        {
            entry.record.failed_allocations = state.failed;
            entry.record.untracked_frees = state.untracked;
            entry.record.lost = state.lost;
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

    /// Counts something that cost nothing.
    pub fn note_one(&mut self, kind: &str) {
        *self.quality.noted.entry(kind.to_owned()).or_default() += 1;
    }

    /// Takes in that the sampling rate changed.
    pub fn rate_changed(&mut self, change: RateChange) {
        if self.rate_changes < MAX_RATE_CHANGES {
            self.rate_changes += 1;
            self.rates.push(change);
        } else {
            let noted = self.quality.noted.entry("rate_changes_unlisted".to_owned());
            *noted.or_default() += 1;
        }
    }

    /// Takes in how often sizes of each class were asked for.
    pub fn set_sizes(&mut self, sizes: Vec<u64>) {
        self.sizes = sizes;
    }

    /// Takes in what the maps of the kernel program take.
    pub fn set_kernel_map_bytes(&mut self, bytes: u64) {
        self.quality.kernel_map_bytes = bytes;
    }

    /// Takes in what the agent itself has taken so far.
    pub fn set_agent_usage(&mut self, usage: Usage) {
        self.quality.agent_cpu_ns = usage.cpu_ns;
        self.quality.agent_peak_bytes = usage.peak_bytes;
    }

    /// Takes in the files that no reader could read.
    pub fn set_unreadable(&mut self, unread: Unread) {
        self.set_noted("files_unreadable", unread.count);
        let files = unread.files.into_iter();
        self.quality.unreadable = files.map(|(file, why)| format!("{file}: {why}")).collect();
    }

    /// Takes in the files for whose unwind tables there was no room.
    pub fn set_without_tables(&mut self, files: BTreeSet<String>) {
        self.quality.without_tables = files;
    }
}
