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

/// Most processes that crashed or were killed and keep their own records when others of their age are merged.
const MAX_SUDDEN: usize = 64;

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
    /// Older ones that crashed or were killed.
    sudden: VecDeque<ProcessId>,
    /// How many that crashed or were killed have been merged.
    sudden_merged: u64,
    /// The records of many, by name and control group.
    merged: HashMap<(String, String), ProcessId>,
}

impl EndedProcesses {
    pub(super) fn new(limits: EndedLimits) -> Self {
        Self {
            limits,
            queue: VecDeque::new(),
            sites: 0,
            sudden: VecDeque::new(),
            sudden_merged: 0,
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
        while let Some(oldest) = self.take_excess(ledger) {
            self.merge(oldest, ledger);
            merged.push(oldest);
        }
        merged
    }

    /// How many processes that crashed or were killed have no records of their own any more.
    pub(super) fn sudden_merged(&self) -> u64 {
        self.sudden_merged
    }

    /// The oldest process, if there are too many.
    fn take_excess(&mut self, ledger: &Ledger) -> Option<ProcessId> {
        while self.queue.len() > self.limits.processes || self.sites > self.limits.sites {
            let (oldest, sites) = self.queue.pop_front()?;
            self.sites -= sites;
            let is_sudden = is_sudden(oldest, ledger);
            let is_kept = is_sudden && sites <= self.limits.sites / MAX_SUDDEN;
            if !is_kept {
                self.sudden_merged += u64::from(is_sudden);
                return Some(oldest);
            }
            self.sudden.push_back(oldest);
            if self.sudden.len() > MAX_SUDDEN {
                self.sudden_merged += 1;
                return self.sudden.pop_front();
            }
        }
        None
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

fn is_sudden(id: ProcessId, ledger: &Ledger) -> bool {
    let entry = ledger.processes().get(id);
    let end = entry.and_then(|entry| entry.record().end);
    end.is_some_and(|end| end.cause.is_sudden())
}
