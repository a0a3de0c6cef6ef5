//! Merges the oldest ended processes into one record for each name and control group.
//!
//! Stage: join. A machine starts processes without end, and each has sites of its own. So only some ended
//! processes keep their own records; the oldest ones are added up. No sum changes by that, and a merged
//! record stays small, because programs of the same name have the same stacks. The slots that they had in the
//! tables are used again.

use std::collections::{HashMap, VecDeque};

use super::ledger::Ledger;
use super::update::{Process, ProcessId};

/// Most names with a record of their own. A process chooses its name itself, so their number needs a limit.
const MAX_NAMES: usize = 1024;

/// How many ended processes, and sites of these, keep records of their own.
#[derive(Clone, Copy, Debug)]
pub struct EndedLimits {
    /// Processes.
    pub processes: usize,
    /// Their sites.
    pub sites: usize,
}

impl EndedLimits {
    /// The limits that fit into the memory of a run.
    pub fn within(memory: u64) -> Self {
        let share = |each| usize::try_from(memory / each).unwrap_or(usize::MAX);
        Self {
            processes: share(64 << 10),
            sites: share(2 << 10),
        }
    }
}

/// The ended processes with records of their own, and the records that stand for many.
#[derive(Debug)]
pub(super) struct EndedProcesses {
    limits: EndedLimits,
    /// In the order in which they ended, with the number of their sites.
    queue: VecDeque<(ProcessId, usize)>,
    /// Sites of all processes in the queue.
    sites: usize,
    /// The records of many, by name and control group.
    merged: HashMap<(String, String), ProcessId>,
}

impl EndedProcesses {
    pub(super) fn new(limits: EndedLimits) -> Self {
        Self {
            limits,
            queue: VecDeque::new(),
            sites: 0,
            merged: HashMap::new(),
        }
    }

    /// Adds a process that has ended, and merges the oldest ones while there are too many. Returns the slots
    /// of the merged ones.
    pub(super) fn add(&mut self, id: ProcessId, ledger: &mut Ledger) -> Vec<ProcessId> {
        let entry = ledger.processes().get(id);
        let sites = entry.map_or(0, |entry| entry.sites().len());
        self.queue.push_back((id, sites));
        self.sites += sites;
        let mut merged = Vec::new();
        while let Some(oldest) = self.take_excess() {
            self.merge(oldest, ledger);
            merged.push(oldest);
        }
        merged
    }

    /// The oldest process, if there are too many.
    fn take_excess(&mut self) -> Option<ProcessId> {
        let has_excess = self.queue.len() > self.limits.processes || self.sites > self.limits.sites;
        if !has_excess {
            return None;
        }
        let (oldest, sites) = self.queue.pop_front()?;
        self.sites -= sites;
        Some(oldest)
    }

    fn merge(&mut self, id: ProcessId, ledger: &mut Ledger) {
        if let Some(ended) = ledger.vacate(id) {
            let into = self.record_of_many(ended.record(), ledger);
            ledger.merge(ended, into);
        }
    }

    /// The record of all ended processes with the name and control group of this one.
    fn record_of_many(&mut self, one: &Process, ledger: &mut Ledger) -> ProcessId {
        let mut name = (one.command.clone(), one.cgroup.clone());
        if self.merged.len() >= MAX_NAMES && !self.merged.contains_key(&name) {
            name = ("(others)".to_owned(), String::new());
        }
        if let Some(id) = self.merged.get(&name) {
            return *id;
        }
        let record = Process {
            command: name.0.clone(),
            cgroup: name.1.clone(),
            ended: true,
            ..Process::default()
        };
        let id = ledger.add_merged(record);
        self.merged.insert(name, id);
        id
    }
}
