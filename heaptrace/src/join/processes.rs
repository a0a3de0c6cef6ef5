//! The processes of a run, by the serial numbers that events carry.
//!
//! Stage: join. A slot of the table is used again after its process was merged with others.

use heaptrace_common::wire::ProcessBegin;

use super::keyed_hash::HashMap;
use super::process::{ProcessEntry, Sampled};
use super::sent_stack::SentStack;
use super::update::{Process, ProcessId};

/// All processes.
#[derive(Debug, Default)]
pub(super) struct Processes {
    entries: Vec<ProcessEntry>,
    by_serial: HashMap<u64, ProcessId>,
    /// Records of running processes, by pid.
    running: HashMap<u32, ProcessId>,
    changed: Vec<ProcessId>,
    /// Slots without a process.
    vacant: Vec<ProcessId>,
    /// Processes with samples that were not reported yet, or that have ended.
    sampled: Vec<ProcessId>,
}

impl Processes {
    /// Adds a process.
    pub(super) fn begin(&mut self, event: &ProcessBegin, record: Process) {
        let id = self.add(ProcessEntry::new(event.process, record));
        self.by_serial.insert(event.process, id);
        self.running.insert(event.tgid, id);
    }

    /// Adds a record that stands for many processes.
    pub(super) fn add_merged(&mut self, record: Process) -> ProcessId {
        self.add(ProcessEntry::new(0, record))
    }

    fn add(&mut self, entry: ProcessEntry) -> ProcessId {
        let next = ProcessId(self.entries.len() as u32);
        let id = self.vacant.pop().unwrap_or(next);
        match self.entries.get_mut(id.0 as usize) {
            Some(slot) => *slot = entry,
            None => self.entries.push(entry),
        }
        self.changed.push(id);
        id
    }

    /// Takes a process out, so that another one can have its slot.
    pub(super) fn vacate(&mut self, id: ProcessId) -> Option<ProcessEntry> {
        let slot = self.entries.get_mut(id.0 as usize)?;
        let entry = std::mem::replace(slot, ProcessEntry::vacant());
        self.by_serial.remove(&entry.serial());
        self.vacant.push(id);
        self.changed.push(id);
        Some(entry)
    }

    /// Counts a sample.
    pub(super) fn count_sample(&mut self, id: ProcessId) {
        if let Some(entry) = self.entries.get_mut(id.0 as usize)
            && entry.count_sample()
        {
            self.sampled.push(id);
        }
    }

    /// The samples that arrived since the last call, and the processes that ended.
    pub(super) fn take_sampled(&mut self) -> Vec<Sampled> {
        let mut ids = std::mem::take(&mut self.sampled);
        ids.sort_unstable();
        ids.dedup();
        ids.into_iter()
            .filter_map(|id| Some(self.entries.get_mut(id.0 as usize)?.take_sampled(id)))
            .collect()
    }

    /// Records that a process has ended.
    pub(super) fn ended(&mut self, pid: u32, id: ProcessId) {
        self.sampled.push(id);
        if self.running.get(&pid) == Some(&id) {
            self.running.remove(&pid);
        }
    }

    /// Whether a pid has a running process.
    pub(super) fn is_running(&self, pid: u32) -> bool {
        self.running.contains_key(&pid)
    }

    /// The running process of a pid.
    pub(super) fn running(&self, pid: u32) -> Option<ProcessId> {
        self.running.get(&pid).copied()
    }

    /// The process with a serial number.
    pub(super) fn id(&self, serial: u64) -> Option<ProcessId> {
        self.by_serial.get(&serial).copied()
    }

    pub(super) fn get(&self, id: ProcessId) -> Option<&ProcessEntry> {
        self.entries.get(id.0 as usize)
    }

    /// A stack of a process, by the id of the kernel program.
    pub(super) fn sent_stack(&self, id: ProcessId, stack: u64) -> Option<SentStack> {
        self.get(id)?.sent_stack(stack)
    }

    /// The records of all processes, without current totals.
    pub(super) fn records(&self) -> impl Iterator<Item = &Process> {
        self.entries.iter().map(ProcessEntry::record)
    }

    /// A process that is about to change.
    pub(super) fn change(&mut self, id: ProcessId) -> Option<&mut ProcessEntry> {
        let entry = self.entries.get_mut(id.0 as usize)?;
        if entry.mark_changed() {
            self.changed.push(id);
        }
        Some(entry)
    }

    /// The records that changed since the last call, in the order of their ids.
    pub(super) fn take_changed(&mut self) -> Vec<(ProcessId, Process)> {
        let mut changed = std::mem::take(&mut self.changed);
        changed.sort_unstable();
        changed.dedup();
        changed
            .into_iter()
            .filter_map(|id| Some((id, self.entries.get_mut(id.0 as usize)?.take_changed())))
            .collect()
    }
}

/// The name of a process, out of the bytes that the kernel keeps.
pub(super) fn name(comm: &[u8]) -> String {
    let bytes = comm.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a name ends at its first zero byte.
    #[test]
    fn names_end_at_zero() {
        assert_eq!(name(b"ab\0cd"), "ab");
        assert_eq!(name(b"abcd"), "abcd");
    }
}
