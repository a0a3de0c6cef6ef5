//! Processes of a run: their records, their blocks and their sites.
//!
//! Stage: join.

use heaptrace_common::wire::{ProcessBegin, StackKey};

use super::blocks::Blocks;
use super::estimate::{Amount, Sums};
use super::joiner::SentStack;
use super::keyed_hash::HashMap;
use super::regions::Regions;
use super::update::{Kind, Process, ProcessId, SiteId, StackId, ThreadNameId};

/// Samples of a process that came since this was asked for last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampled {
    /// The process.
    pub process: ProcessId,
    /// Its id.
    pub pid: u32,
    /// How many came.
    pub samples: u64,
    /// Whether none had come before.
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
}

/// What a process has mapped, and the site of each mapping.
pub(super) type Mapped = Regions<SiteId>;

/// A process and what belongs to it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) serial: u64,
    pub(super) record: Process,
    pub(super) sums: Sums,
    pub(super) peak: Amount,
    pub(super) blocks: Blocks,
    pub(super) mapped: Mapped,
    /// Keys of its stacks in the kernel's map.
    pub(super) stacks: Vec<StackKey>,
    /// Its stacks by the ids of the kernel program.
    pub(super) sent: HashMap<u64, SentStack>,
    pub(super) sites: HashMap<SiteKey, SiteId>,
    pub(super) is_changed: bool,
    /// How often it has been left alone, and when last, on the monotonic clock.
    pub(super) turn: u32,
    pub(super) paused: u64,
    /// Samples since they were counted last, and whether they ever were.
    samples: u64,
    was_counted: bool,
}

/// All processes, by the serial number that events carry.
#[derive(Debug, Default)]
pub(super) struct Processes {
    pub(super) entries: Vec<Entry>,
    by_serial: HashMap<u64, ProcessId>,
    /// Records that go on, by pid.
    running: HashMap<u32, ProcessId>,
    changed: Vec<ProcessId>,
    /// Places in the table that nobody has.
    vacant: Vec<ProcessId>,
    /// Those with samples that are not counted yet, or that have ended.
    sampled: Vec<ProcessId>,
}

impl Processes {
    pub(super) fn begin(&mut self, event: &ProcessBegin, record: Process) -> ProcessId {
        let id = self.add(event.process, record);
        self.by_serial.insert(event.process, id);
        self.running.insert(event.tgid, id);
        id
    }

    /// A record that stands for many processes.
    pub(super) fn add_merged(&mut self, record: Process) -> ProcessId {
        self.add(0, record)
    }

    fn add(&mut self, serial: u64, record: Process) -> ProcessId {
        let entry = Entry {
            serial,
            record,
            sums: Sums::default(),
            peak: Amount::default(),
            blocks: Blocks::default(),
            mapped: Mapped::default(),
            stacks: Vec::new(),
            sent: HashMap::default(),
            sites: HashMap::default(),
            is_changed: true,
            turn: 0,
            paused: 0,
            samples: 0,
            was_counted: false,
        };
        let next = ProcessId(self.entries.len() as u32);
        let id = self.vacant.pop().unwrap_or(next);
        match self.entries.get_mut(id.0 as usize) {
            Some(place) => *place = entry,
            None => self.entries.push(entry),
        }
        self.changed.push(id);
        id
    }

    /// Takes a record out. Its place is given to another one.
    pub(super) fn vacate(&mut self, id: ProcessId) -> Option<Entry> {
        let place = self.entries.get_mut(id.0 as usize)?;
        let vacant = Entry {
            serial: 0,
            record: Process::vacant(),
            blocks: Blocks::default(),
            mapped: Mapped::default(),
            stacks: Vec::new(),
            sent: HashMap::default(),
            sites: HashMap::default(),
            is_changed: true,
            turn: 0,
            paused: 0,
            sums: Sums::default(),
            peak: Amount::default(),
            samples: 0,
            was_counted: false,
        };
        let entry = std::mem::replace(place, vacant);
        self.by_serial.remove(&entry.serial);
        self.vacant.push(id);
        self.changed.push(id);
        Some(entry)
    }

    /// A sample came.
    pub(super) fn sampled(&mut self, id: ProcessId) {
        if let Some(entry) = self.entries.get_mut(id.0 as usize) {
            entry.samples += 1;
            if entry.samples == 1 {
                self.sampled.push(id);
            }
        }
    }

    /// The samples that came since the last call, and the processes that ended.
    pub(super) fn take_sampled(&mut self) -> Vec<Sampled> {
        let mut ids = std::mem::take(&mut self.sampled);
        ids.sort_unstable();
        ids.dedup();
        ids.into_iter()
            .filter_map(|id| {
                let entry = self.entries.get_mut(id.0 as usize)?;
                Some(Sampled {
                    process: id,
                    pid: entry.record.pid,
                    samples: std::mem::take(&mut entry.samples),
                    is_new: !std::mem::replace(&mut entry.was_counted, true),
                    ended: entry.record.ended,
                })
            })
            .collect()
    }

    /// A record has ended.
    pub(super) fn ended(&mut self, pid: u32, id: ProcessId) {
        self.sampled.push(id);
        if self.running.get(&pid) == Some(&id) {
            self.running.remove(&pid);
        }
    }

    /// Whether a process has a record that goes on.
    pub(super) fn is_running(&self, pid: u32) -> bool {
        self.running.contains_key(&pid)
    }

    /// The record of a process that goes on.
    pub(super) fn running(&self, pid: u32) -> Option<ProcessId> {
        self.running.get(&pid).copied()
    }

    pub(super) fn id(&self, serial: u64) -> Option<ProcessId> {
        self.by_serial.get(&serial).copied()
    }

    pub(super) fn get(&self, id: ProcessId) -> Option<&Entry> {
        self.entries.get(id.0 as usize)
    }

    /// A stack of a process, by the id of the kernel program.
    pub(super) fn sent(&self, id: ProcessId, stack: u64) -> Option<SentStack> {
        self.get(id)?.sent.get(&stack).copied()
    }

    /// An entry that is going to change.
    pub(super) fn change(&mut self, id: ProcessId) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(id.0 as usize)?;
        if !entry.is_changed {
            entry.is_changed = true;
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
            .filter_map(|id| {
                let entry = self.entries.get_mut(id.0 as usize)?;
                entry.is_changed = false;
                entry.record.totals = entry.sums.totals(&entry.peak);
                Some((id, entry.record.clone()))
            })
            .collect()
    }
}

/// Name out of the bytes that the kernel keeps.
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
