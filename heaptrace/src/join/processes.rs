//! The processes of a run, by the serial numbers that events carry.
//!
//! Stage: join. A slot of the table is used again after its process was merged with others.

use heaptrace_common::wire::ProcessBegin;

use super::keyed_hash::HashMap;
use super::process::{ProcessEntry, Sampled};
use super::update::{Process, ProcessId};
use crate::proc::memory::Resident;
use crate::proc::processes;

/// All processes.
#[derive(Debug, Default)]
pub(super) struct Processes {
    entries: Vec<ProcessEntry>,
    by_serial: HashMap<u64, ProcessId>,
    /// Records of running processes, by pid.
    running: HashMap<u32, ProcessId>,
    /// Records of targets without an event so far, by pid.
    silent: HashMap<u32, ProcessId>,
    changed: Vec<ProcessId>,
    /// Slots without a process.
    vacant: Vec<ProcessId>,
    /// Processes with samples that were not reported yet, or that have ended.
    sampled: Vec<ProcessId>,
}

impl Processes {
    /// Adds a process.
    pub(super) fn begin(&mut self, event: &ProcessBegin, record: Process) {
        let id = match self.silent.remove(&event.tgid) {
            Some(id) => {
                if let Some(entry) = self.change(id) {
                    entry.begin(event, record);
                }
                id
            }
            None => self.add(ProcessEntry::new(event.process, record)),
        };
        self.by_serial.insert(event.process, id);
        self.running.insert(event.tgid, id);
    }

    /// Adds a running process that has had no event so far.
    pub(super) fn add_silent(&mut self, record: Process) {
        let pid = record.pid;
        let id = self.add(ProcessEntry::new(0, record));
        self.silent.insert(pid, id);
    }

    /// Ends a process that had no event until its end.
    pub(super) fn end_silent(&mut self, pid: u32) {
        if let Some(entry) = self.silent.remove(&pid).and_then(|id| self.change(id)) {
            entry.end_silent();
        }
    }

    /// Brings the resident memory of running processes up to date.
    pub(super) fn measure(&mut self, resident: impl Fn(u32) -> Option<Resident>) {
        let running: Vec<(u32, ProcessId)> = self
            .running
            .iter()
            .chain(&self.silent)
            .map(|(pid, id)| (*pid, *id))
            .collect();
        for (pid, id) in running {
            if let Some(now) = resident(pid)
                && self.get(id).is_some_and(|entry| entry.is_outdated(now))
                && let Some(entry) = self.change(id)
            {
                entry.set_resident(now);
            }
        }
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

    /// The running processes that have had an event.
    pub(super) fn running_entries(&self) -> impl Iterator<Item = &ProcessEntry> {
        self.running.values().filter_map(|id| self.get(*id))
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

    /// The number of recorded live blocks of all processes.
    pub(super) fn live_blocks(&self) -> usize {
        self.entries.iter().map(ProcessEntry::live_blocks).sum()
    }

    /// The records of running processes, each with its live bytes.
    pub(super) fn live(&self) -> impl Iterator<Item = (&Process, u64)> {
        let running = self.running_entries();
        running.map(|entry| (entry.record(), entry.live_bytes()))
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

/// The name of a running process, as the kernel keeps it; empty if it is gone.
pub(super) fn name_of(pid: u32) -> String {
    processes::name(pid).unwrap_or_default()
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
