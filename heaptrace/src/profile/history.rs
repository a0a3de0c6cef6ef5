//! How the memory of each site changed over a run, in a bounded number of periods.
//!
//! Stage: profile. Made from the updates of a recording. Must not know what a change means.

use std::collections::{HashMap, HashSet};

use crate::join::{Kind, Process, ProcessId, Site, StackId, ThreadNameId, Update};

/// Most periods, unless more are asked for. If there are more, neighbours become one.
const MOST: usize = 64;

/// A process that frees more than this part of what it holds right before it ends is clearing up.
const MUCH: i128 = 10;

/// The memory of a site in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Period {
    /// The least that was not freed at an update of the period, or at its beginning; in bytes, as all of these.
    pub low: u64,
    /// What was not freed at its end, also if the process has ended.
    pub held: u64,
    /// What had been allocated at its end.
    pub allocated: u64,
    /// What had been freed at its end.
    pub freed: u64,
    /// What was live at its end.
    pub live: Counter,
    /// The blocks that were live.
    pub live_blocks: Counter,
    /// The standard error of what had been allocated.
    pub allocated_error: u64,
    /// The blocks that had been allocated.
    pub blocks: Counter,
}

/// A number, and its standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// The number.
    pub value: u64,
    /// The error.
    pub error: u64,
}

/// A period in which a site changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    period: usize,
    state: Period,
}

/// What makes a site the same one in all updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    process: ProcessId,
    stack: StackId,
    thread: Option<ThreadNameId>,
    kind: Kind,
}

impl Key {
    fn of(site: &Site) -> Self {
        Self {
            process: site.process,
            stack: site.stack,
            thread: site.thread,
            kind: site.kind,
        }
    }
}

/// The memory of each site over a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// Most periods.
    most: usize,
    /// The end of each period, nanoseconds since the run began.
    ends: Vec<u64>,
    /// Updates of a whole period.
    whole: u32,
    /// Updates of the last period.
    updates: u32,
    /// The periods in which each site changed.
    sites: HashMap<Key, Vec<Entry>>,
    /// The process in each slot.
    processes: HashMap<ProcessId, Identity>,
}

/// What stays the same of a process, and differs from those that use its slot later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    pid: u32,
    start_time_ns: u64,
    is_merged: bool,
}

impl Default for History {
    fn default() -> Self {
        Self::with(MOST)
    }
}

impl History {
    /// A history of at most so many periods.
    pub fn with(most: usize) -> Self {
        Self {
            most: most.max(2),
            ends: Vec::new(),
            whole: 1,
            updates: 0,
            sites: HashMap::new(),
            processes: HashMap::new(),
        }
    }
}

impl History {
    /// The memory that an entry needs.
    pub(super) const ENTRY: u64 = 2 * size_of::<Entry>() as u64;

    /// Adds an update. Returns the number of new entries.
    pub fn record(&mut self, update: &Update) -> u64 {
        self.begin_update(update.elapsed_ns);
        self.forget_replaced(&update.processes);
        let period = self.ends.len() - 1;
        let mut new = 0;
        for (_, site) in &update.sites {
            let totals = &site.totals;
            let held = totals.live_bytes.saturating_add(totals.left_bytes);
            let state = Period {
                low: held,
                held,
                allocated: totals.allocated_bytes,
                freed: totals.freed_bytes,
                live: Counter {
                    value: totals.live_bytes,
                    error: totals.errors.live_bytes,
                },
                live_blocks: Counter {
                    value: totals.live_allocations,
                    error: totals.errors.live_allocations,
                },
                allocated_error: totals.errors.allocated_bytes,
                blocks: Counter {
                    value: totals.allocations,
                    error: totals.errors.allocations,
                },
            };
            let entries = self.sites.entry(Key::of(site)).or_default();
            match entries.last_mut() {
                Some(last) if last.period == period => {
                    let low = last.state.low.min(held);
                    last.state = Period { low, ..state };
                }
                last => {
                    let before = last.map_or(0, |it| it.state.held);
                    let low = held.min(before);
                    entries.push(Entry {
                        period,
                        state: Period { low, ..state },
                    });
                    new += 1;
                }
            }
        }
        new
    }

    /// Drops the sites of processes whose slots others have now.
    fn forget_replaced(&mut self, changed: &[(ProcessId, Process)]) {
        let mut gone = HashSet::new();
        for (id, process) in changed {
            let identity = Identity {
                pid: process.pid,
                start_time_ns: process.start_time_ns,
                is_merged: process.merged > 0,
            };
            let before = self.processes.insert(*id, identity);
            if before.is_some_and(|before| before != identity) {
                gone.insert(*id);
            }
        }
        if !gone.is_empty() {
            self.sites.retain(|key, _| !gone.contains(&key.process));
        }
    }

    /// Begins a period if the last one is whole.
    fn begin_update(&mut self, elapsed_ns: u64) {
        if self.updates >= self.whole || self.ends.is_empty() {
            if self.ends.len() >= self.most {
                self.halve();
            }
            self.ends.push(elapsed_ns);
            self.updates = 0;
        }
        if let Some(end) = self.ends.last_mut() {
            *end = elapsed_ns;
        }
        self.updates += 1;
    }

    /// Makes one period of each two.
    fn halve(&mut self) {
        self.ends = self
            .ends
            .chunks(2)
            .filter_map(|it| it.last().copied())
            .collect();
        self.whole = self.whole.saturating_mul(2);
        for entries in self.sites.values_mut() {
            let mut halved: Vec<Entry> = Vec::with_capacity(entries.len());
            for entry in entries.iter() {
                let period = entry.period / 2;
                match halved.last_mut() {
                    Some(last) if last.period == period => {
                        let low = last.state.low.min(entry.state.low);
                        last.state = Period { low, ..entry.state };
                    }
                    _ => halved.push(Entry { period, ..*entry }),
                }
            }
            *entries = halved;
        }
    }

    /// The number of entries that are kept.
    pub fn entries(&self) -> usize {
        self.sites.values().map(Vec::len).sum()
    }

    /// The end of each period, nanoseconds since the run began.
    pub fn ends(&self) -> &[u64] {
        &self.ends
    }

    /// For each process, the first period of its end, if it has ended: the last one in which its sites changed, and those right before it
    /// in which much of what it held was freed, as a program does that clears up over several updates.
    pub fn ends_of_processes(&self) -> HashMap<ProcessId, usize> {
        let mut changes: HashMap<ProcessId, Vec<i128>> = HashMap::new();
        for (key, entries) in &self.sites {
            let changes = changes.entry(key.process).or_default();
            let mut before = 0;
            for entry in entries {
                if changes.len() <= entry.period {
                    changes.resize(entry.period + 1, 0);
                }
                let held = i128::from(entry.state.held);
                if let Some(change) = changes.get_mut(entry.period) {
                    *change += held - before;
                }
                before = held;
            }
        }
        let end = |changes: Vec<i128>| {
            let held = changes.iter().scan(0, |held, change| {
                *held += change;
                Some(*held)
            });
            let held: Vec<i128> = held.collect();
            let mut end = held.len().saturating_sub(1);
            while let Some([before, last]) = end
                .checked_sub(2)
                .and_then(|at| held.get(at..end)?.first_chunk())
                && *last * MUCH < *before * (MUCH - 1)
            {
                end -= 1;
            }
            end
        };
        let of_each = changes.into_iter();
        of_each.map(|(id, changes)| (id, end(changes))).collect()
    }

    /// Gives processes other ids, by the present ones; those without one are left out.
    pub fn renumber(&mut self, new_ids: &[Option<ProcessId>]) {
        let sites = std::mem::take(&mut self.sites).into_iter();
        let moved = sites.filter_map(|(key, entries)| {
            let process = *new_ids.get(key.process.0 as usize)?;
            let process = process?;
            Some((Key { process, ..key }, entries))
        });
        self.sites = moved.collect();
    }

    /// The memory of a site in each period.
    pub fn of(&self, site: &Site) -> Vec<Period> {
        let entries = self.sites.get(&Key::of(site));
        let mut entries = entries.into_iter().flatten().peekable();
        let mut state = Period::default();
        (0..self.ends.len())
            .map(|period| {
                match entries.next_if(|it| it.period == period) {
                    Some(entry) => state = entry.state,
                    None => state.low = state.held,
                }
                state
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::{SiteId, Totals};

    fn site(stack: u32, held: u64, freed: u64) -> (SiteId, Site) {
        let totals = Totals {
            live_bytes: held,
            freed_bytes: freed,
            allocated_bytes: held + freed,
            ..Totals::default()
        };
        let site = Site {
            totals,
            ..Site::of_heap(ProcessId(0), StackId(stack), SiteId(0))
        };
        (SiteId(stack), site)
    }

    fn recorded(updates: impl IntoIterator<Item = Vec<(SiteId, Site)>>) -> History {
        let mut history = History::default();
        for (at, sites) in updates.into_iter().enumerate() {
            let update = Update {
                elapsed_ns: at as u64 + 1,
                sites,
                ..Update::default()
            };
            history.record(&update);
        }
        history
    }

    /// Check that a site has its state in each period, also before it began and where it did not change.
    #[test]
    fn states_are_kept() {
        let history = recorded([
            vec![site(0, 10, 0)],
            vec![site(1, 7, 0)],
            vec![site(0, 4, 6), site(1, 9, 0)],
            vec![],
        ]);
        assert_eq!(history.ends(), [1, 2, 3, 4]);
        let of = |stack| history.of(&site(stack, 0, 0).1);
        let lows = |stack| of(stack).iter().map(|it| it.low).collect::<Vec<_>>();
        assert_eq!(lows(0), [0, 10, 4, 4]);
        assert_eq!(lows(1), [0, 0, 7, 9]);
        assert_eq!(lows(2), [0; 4]);
        let last = of(0)[3];
        assert_eq!((last.held, last.freed, last.allocated), (4, 6, 10));
    }

    /// Check that a process does not get the memory of another one whose slot it has, and that news of the same one drop nothing.
    #[test]
    fn slots_of_others_are_forgotten() {
        let mut history = History::default();
        let process = |pid, ended| Process {
            pid,
            ended,
            ..Process::default()
        };
        let updates = [
            (process(7, false), 100),
            (process(7, true), 90),
            (process(8, false), 5),
        ];
        for ((process, held), at) in updates.into_iter().zip(1..) {
            history.record(&Update {
                elapsed_ns: at,
                processes: vec![(ProcessId(0), process)],
                sites: vec![site(0, held, 0)],
                ..Update::default()
            });
            let periods = history.of(&site(0, 0, 0).1);
            let held: Vec<u64> = periods.iter().map(|it| it.held).collect();
            assert_eq!(held, [&[100][..], &[100, 90], &[0, 0, 5]][at as usize - 1]);
        }
    }

    /// Check that the end of a process begins where it begins to free much, and not where it frees little, or then grows again.
    #[test]
    fn processes_may_clear_up_slowly() {
        let end = |held: &[u64]| {
            let history = recorded(
                held.iter()
                    .map(|held| vec![site(0, *held / 2, 0), site(1, *held / 2, 0)]),
            );
            history.ends_of_processes()[&ProcessId(0)]
        };
        assert_eq!(end(&[100, 110, 120, 130, 0]), 4);
        assert_eq!(end(&[100, 110, 120, 130, 130]), 4);
        assert_eq!(end(&[100, 110, 120, 60, 20, 0]), 3);
        assert_eq!(end(&[100, 110, 120, 118, 0]), 4);
        assert_eq!(end(&[100, 20, 120, 60, 0]), 3);
        assert_eq!(end(&[100]), 0);
        assert_eq!(end(&[100, 0, 0]), 1);
    }

    /// Check that a long run has a bounded number of periods, whose lows are those of all their updates.
    #[test]
    fn periods_are_bounded() {
        let saw = |at: u64| 1_000 + at / 8 * 8 - at % 8 * 100;
        let history = recorded((0..1_000).map(|at| vec![site(0, saw(at), 0)]));
        let (ends, periods) = (history.ends(), history.of(&site(0, 0, 0).1));
        assert!((32..=64).contains(&ends.len()), "{}", ends.len());
        assert_eq!(ends.last(), Some(&1_000));
        assert!(ends.is_sorted());
        for (at, pair) in ends.windows(2).enumerate() {
            let all = (pair[0]..pair[1]).map(saw);
            let least = all.min().unwrap().min(saw(pair[0] - 1));
            assert_eq!(periods[at + 1].low, least, "period {at}");
            assert_eq!(periods[at + 1].held, saw(pair[1] - 1));
        }
    }
}
