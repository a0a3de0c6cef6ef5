//! Ended processes beyond a number, kept as one record for each name.
//!
//! Stage: join. A machine starts processes without end, and each has sites of its own. So the oldest
//! ended ones are added up with others of their name and control group: nothing goes from any sum, and
//! what they held is small, because programs of a name have the same stacks. Their places in the
//! tables are given out again.

use std::collections::{HashMap, VecDeque};

use super::joiner::Joiner;
use super::update::{DutyCycle, Process, ProcessId, SiteId};

/// Most names that are told apart; what a process calls itself is its own choice.
const MAX_NAMES: usize = 1024;

/// How many ended processes are kept, and how many sites of theirs.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Processes.
    pub ended: usize,
    /// Their sites.
    pub sites: usize,
}

impl Room {
    /// What the memory of a run allows.
    pub fn within(memory: u64) -> Self {
        let share = |each| usize::try_from(memory / each).unwrap_or(usize::MAX);
        Self {
            ended: share(64 << 10),
            sites: share(2 << 10),
        }
    }
}

/// The ended processes that have records of their own, and those records that stand for many.
#[derive(Debug)]
pub(super) struct Ended {
    room: Room,
    /// In the order of their ends, with the number of their sites.
    kept: VecDeque<(ProcessId, usize)>,
    sites: usize,
    by_name: HashMap<(String, String), ProcessId>,
    /// Places in the table of sites that nobody has.
    pub(super) vacant_sites: Vec<SiteId>,
}

impl Ended {
    pub(super) fn new(room: Room) -> Self {
        Self {
            room,
            kept: VecDeque::new(),
            sites: 0,
            by_name: HashMap::new(),
            vacant_sites: Vec::new(),
        }
    }

    fn next(&mut self) -> Option<ProcessId> {
        let is_over = self.kept.len() > self.room.ended || self.sites > self.room.sites;
        if !is_over {
            return None;
        }
        let (oldest, sites) = self.kept.pop_front()?;
        self.sites -= sites;
        Some(oldest)
    }
}

impl Joiner {
    /// Notes that a process has ended, and folds the oldest ones where there are too many.
    pub(super) fn keep_ended(&mut self, id: ProcessId) {
        let sites = self.processes.get(id).map_or(0, |entry| entry.sites.len());
        self.ended.kept.push_back((id, sites));
        self.ended.sites += sites;
        while let Some(oldest) = self.ended.next() {
            self.fold(oldest);
        }
    }

    fn fold(&mut self, id: ProcessId) {
        let Some(old) = self.processes.vacate(id) else {
            return;
        };
        let into = self.record_of_many(&old.record);
        for (stack, from) in old.sites {
            let Some(entry) = self.processes.change(into) else {
                return;
            };
            let to = *entry.sites.entry(stack).or_insert(from);
            let Some(state) = self.sites.get_mut(from.0 as usize) else {
                continue;
            };
            state.process = into;
            if to != from {
                let sums = std::mem::take(&mut state.sums);
                self.peak.merge(from.0, to.0);
                if let Some(state) = self.sites.get_mut(to.0 as usize) {
                    state.sums.merge(&sums);
                }
                self.ended.vacant_sites.push(from);
                self.changed(to);
            }
            self.changed(from);
        }
        if let Some(entry) = self.processes.change(into) {
            entry.sums.merge(&old.sums);
            // The peaks of several are not one peak: the highest is kept.
            if entry.peak.is_below(&old.peak) {
                entry.peak = old.peak;
            }
            let record = &mut entry.record;
            record.untracked_frees += old.record.untracked_frees;
            record.failed_allocations += old.record.failed_allocations;
            record.lost += old.record.lost;
            record.merged += 1;
            if let Some(duty_cycle) = old.record.duty_cycle {
                let sum = record.duty_cycle.get_or_insert(DutyCycle {
                    unprobed_ns: 0,
                    ..duty_cycle
                });
                sum.unprobed_ns += duty_cycle.unprobed_ns;
                sum.overhead = sum.overhead.max(duty_cycle.overhead);
            }
            for allocator in old.record.allocators {
                if !record.allocators.contains(&allocator) {
                    record.allocators.push(allocator);
                }
            }
        }
    }

    /// The record for all ended processes of a name and control group.
    fn record_of_many(&mut self, one: &Process) -> ProcessId {
        let mut name = (one.command.clone(), one.cgroup.clone());
        if self.ended.by_name.len() >= MAX_NAMES && !self.ended.by_name.contains_key(&name) {
            name = ("(others)".to_owned(), String::new());
        }
        if let Some(id) = self.ended.by_name.get(&name) {
            return *id;
        }
        let record = Process {
            command: name.0.clone(),
            cgroup: name.1.clone(),
            ended: true,
            ..Process::default()
        };
        let id = self.processes.add_merged(record);
        self.ended.by_name.insert(name, id);
        id
    }
}
