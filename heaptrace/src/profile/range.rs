//! The part of a run between two of its updates: what was allocated and freed in it, and what was live at its end.
//!
//! Stage: profile. Updates hold sums since the run began, so those at the beginning of the range are subtracted from those at its end. Must
//! not know files, nor what a range is for.

use std::collections::{HashMap, HashSet};

use super::model::{Profile, Range};
use super::subtract::{add, is_nothing, subtract};
use crate::join::{
    Errors, Kind, OwnPeak, Process, ProcessId, Site, SiteId, StackId, ThreadNameId, Totals, Update,
};

/// Memory that a site needs in a range: what it held at the beginning, at the highest update of the run and at that of its process.
pub(super) const PER_SITE: u64 = 4 * size_of::<Site>() as u64;

/// A slot of the table of processes, and how often it got another process.
type Slot = (u32, u32);

/// What tells sites apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Origin {
    process: Slot,
    stack: StackId,
    thread: Option<ThreadNameId>,
    kind: Kind,
}

/// What a site held at an update.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// The number of that update.
    at: u64,
    origin: Origin,
    bytes: OwnPeak,
}

/// The highest update of the run, or of a process.
#[derive(Clone, Copy, Debug, Default)]
struct Highest {
    /// Its number since the beginning of the range.
    at: u64,
    bytes: OwnPeak,
}

impl Highest {
    fn raise(&mut self, totals: &Totals, at: u64) {
        if totals.live_bytes > self.bytes.bytes {
            *self = Self {
                at,
                bytes: live(totals),
            };
        }
    }
}

/// The state at the beginning of the range.
#[derive(Clone, Debug, Default)]
struct Begin {
    elapsed_ns: u64,
    sites: Vec<(Origin, Totals)>,
    /// Without their allocators.
    processes: Vec<Process>,
    sizes: Vec<u64>,
    totals: Totals,
}

/// Follows the updates of a run, and finds what happened in a range.
#[derive(Debug)]
pub(super) struct Following {
    from_ns: u64,
    begin: Option<Begin>,
    /// The updates since the beginning of the range.
    updates: u64,
    highest: Highest,
    /// The same for each process.
    of_processes: Vec<Highest>,
    /// How often each slot got another process.
    turns: Vec<u32>,
    /// The name and control group of processes whose slots were vacated: one record stands for all of a name.
    vacated: HashMap<Slot, (String, String)>,
    /// What the sites held at the highest update, if they have changed since: of the run, and of their process.
    held: HashMap<u32, Held>,
    held_by_process: HashMap<u32, Held>,
}

/// The live bytes of a sum.
fn live(totals: &Totals) -> OwnPeak {
    OwnPeak {
        bytes: totals.live_bytes,
        error: totals.errors.live_bytes,
        unseen: totals.errors.unseen.live_bytes,
    }
}

fn is_same(a: &Process, b: &Process) -> bool {
    let id = |it: &Process| (it.pid, it.start_time_ns, it.merged > 0);
    // An `exec` begins another record of the same process.
    id(a) == id(b) && (a.merged == 0 || (&a.command, &a.cgroup) == (&b.command, &b.cgroup))
}

impl Following {
    /// Follows a run of which the part from this time on is wanted.
    pub(super) fn new(from_ns: u64) -> Self {
        Self {
            from_ns,
            begin: None,
            updates: 0,
            highest: Highest::default(),
            of_processes: Vec::new(),
            turns: Vec::new(),
            vacated: HashMap::new(),
            held: HashMap::new(),
            held_by_process: HashMap::new(),
        }
    }

    /// Must be called before an update is folded. Returns the memory that is needed from now on.
    pub(super) fn before(&mut self, profile: &Profile, update: &Update) -> u64 {
        let mut needed = 0;
        if self.begin.is_none() {
            let distance = |at: u64| at.abs_diff(self.from_ns);
            if distance(update.elapsed_ns) < distance(profile.duration_ns) {
                return 0;
            }
            self.begin(profile);
            needed += PER_SITE * profile.sites.len() as u64;
            let names = |it: &Process| (it.command.len() + it.command_line.len()) as u64;
            let processes = profile.processes.iter();
            needed += processes
                .map(|it| 2 * size_of::<Process>() as u64 + names(it))
                .sum::<u64>();
        }
        for (SiteId(id), site) in &update.sites {
            match profile.sites.get(*id as usize) {
                Some(old) => self.remember(*id, old, live(&old.totals)),
                None => {
                    self.remember(*id, site, OwnPeak::default());
                    needed += PER_SITE;
                }
            }
        }
        self.updates += 1;
        for (ProcessId(id), process) in &update.processes {
            let Some(old) = profile.processes.get(*id as usize) else {
                continue;
            };
            if !is_same(old, process) {
                let turn = self.turn(*id);
                let name = (old.command.clone(), old.cgroup.clone());
                needed += (2 * size_of_val(&name) + name.0.len() + name.1.len()) as u64;
                self.vacated.insert((*id, turn), name);
                if let Some(turn) = self.turns.get_mut(*id as usize) {
                    *turn += 1;
                }
                self.of_process(*id, |highest| {
                    *highest = Highest::default();
                });
            }
        }
        needed
    }

    /// Must be called after an update was folded that had these processes.
    pub(super) fn after(&mut self, profile: &Profile, changed: &[ProcessId]) {
        if self.begin.is_none() {
            return;
        }
        let at = self.updates;
        self.turns.resize(profile.processes.len(), 0);
        let slots = profile.processes.len();
        self.of_processes.resize(slots, Highest::default());
        self.highest.raise(&profile.totals, at);
        for id in changed {
            if let Some(process) = profile.processes.get(id.0 as usize) {
                self.of_process(id.0, |highest| highest.raise(&process.totals, at));
            }
        }
    }

    fn begin(&mut self, profile: &Profile) {
        self.turns = vec![0; profile.processes.len()];
        self.highest.bytes = live(&profile.totals);
        let highest = |it: &Process| Highest {
            at: 0,
            bytes: live(&it.totals),
        };
        self.of_processes = profile.processes.iter().map(highest).collect();
        let sites = profile.sites.iter();
        let without_allocators = |it: &Process| Process {
            allocators: Vec::new(),
            ..it.clone()
        };
        self.begin = Some(Begin {
            elapsed_ns: profile.duration_ns,
            sites: sites.map(|it| (origin(it, 0), it.totals)).collect(),
            processes: profile.processes.iter().map(without_allocators).collect(),
            sizes: profile.sizes.clone(),
            totals: profile.totals,
        });
    }

    /// How often a slot got another process.
    fn turn(&self, slot: u32) -> u32 {
        self.turns.get(slot as usize).copied().unwrap_or(0)
    }

    fn of_process(&mut self, slot: u32, change: impl FnOnce(&mut Highest)) {
        if let Some(highest) = self.of_processes.get_mut(slot as usize) {
            change(highest);
        }
    }

    /// Remembers what a site held at the highest updates, before it changes.
    fn remember(&mut self, id: u32, site: &Site, bytes: OwnPeak) {
        let turn = self.turn(site.process.0);
        let of_process = self.of_processes.get(site.process.0 as usize);
        let of_process = of_process.map_or(0, |it| it.at);
        let held = |at| Held {
            at,
            origin: origin(site, turn),
            bytes,
        };
        for (list, at) in [
            (&mut self.held, self.highest.at),
            (&mut self.held_by_process, of_process),
        ] {
            if list.get(&id).is_none_or(|it| it.at != at) {
                list.insert(id, held(at));
            }
        }
    }

    /// Restricts a profile, which is that of the end of the range, to the range. `None` if no update is between its beginning and its end.
    pub(super) fn restrict(mut self, profile: &mut Profile) -> Option<()> {
        let begin = self.begin.take()?;
        self.of_processes
            .resize(profile.processes.len(), Highest::default());
        let records: HashMap<_, _> = (0..)
            .zip(&profile.processes)
            .filter(|(_, it)| it.merged > 0)
            .map(|(id, it)| ((it.command.clone(), it.cgroup.clone()), id))
            .collect();
        let others = records
            .get(&("(others)".to_owned(), String::new()))
            .copied();
        let into = |slot: Slot| -> u32 {
            let record = self
                .vacated
                .get(&slot)
                .map(|name| records.get(name).copied().or(others));
            record.flatten().unwrap_or(slot.0)
        };
        let ends: HashSet<_> = profile.sites.iter().map(|it| origin(it, 0)).collect();
        let sites_at_end = profile.sites.clone();
        let at_end = |id: usize, old: Origin| -> Origin {
            let same = Origin {
                process: (into(old.process), 0),
                ..old
            };
            // A site gets another stack when the rest of its stack is found.
            let moved = sites_at_end.get(id).map(|it| origin(it, 0));
            let is_it = |it: &Origin| it.process == same.process && it.kind == same.kind;
            match moved.filter(is_it) {
                Some(moved) if !ends.contains(&same) => moved,
                _ => same,
            }
        };
        let is_higher = profile.totals.peak_live_bytes > begin.totals.peak_live_bytes;
        let at_peak = (!is_higher).then(|| self.at_highest(profile, false, &at_end));
        let at_own = self.at_highest(profile, true, &at_end);

        let mut of_processes = vec![Vec::new(); profile.processes.len()];
        for (id, process) in (0..).zip(&begin.processes) {
            if let Some(list) = of_processes.get_mut(into((id, 0)) as usize) {
                list.push(process);
            }
        }
        let mut has_own_peak = Vec::with_capacity(profile.processes.len());
        let mut was_ended = Vec::with_capacity(profile.processes.len());
        for ((process, before), highest) in profile
            .processes
            .iter_mut()
            .zip(&of_processes)
            .zip(&self.of_processes)
        {
            let earlier = before.iter().map(|it| it.totals.peak_live_bytes);
            let is_higher = process.merged > 0
                || process.totals.peak_live_bytes > earlier.max().unwrap_or_default();
            was_ended.push(before.iter().any(|it| it.ended));
            for before in before {
                subtract(&mut process.totals, &before.totals);
            }
            if !is_higher {
                set_peak(&mut process.totals, highest.bytes);
            }
            has_own_peak.push(is_higher);
        }

        let mut earlier: HashMap<Origin, Totals> = HashMap::new();
        for (id, (old, totals)) in begin.sites.iter().enumerate() {
            add(earlier.entry(at_end(id, *old)).or_default(), totals);
        }
        let mut is_kept = Vec::with_capacity(profile.sites.len());
        for site in &mut profile.sites {
            let key = origin(site, 0);
            if site.totals.allocations == 0 {
                is_kept.push(false);
                continue;
            }
            if let Some(totals) = earlier.remove(&key) {
                subtract(&mut site.totals, &totals);
            }
            if let Some(at_peak) = &at_peak {
                let held = at_peak.get(&key).copied();
                set_peak(&mut site.totals, held.unwrap_or_default());
            }
            if has_own_peak.get(site.process.0 as usize) == Some(&false) {
                site.own_peak = at_own.get(&key).copied().unwrap_or_default();
            }
            is_kept.push(!is_nothing(&site.totals));
        }
        let mut is_kept = is_kept.into_iter();
        profile.sites.retain(|_| is_kept.next().unwrap_or(false));
        let with_sites: HashSet<_> = profile.sites.iter().map(|it| it.process.0).collect();
        for ((id, process), was_ended) in (0..).zip(&mut profile.processes).zip(was_ended) {
            // It did nothing in this time.
            if was_ended && !with_sites.contains(&id) && is_nothing(&process.totals) {
                *process = Process {
                    ended: true,
                    ..Process::default()
                };
            }
        }
        subtract(&mut profile.totals, &begin.totals);
        if !is_higher {
            set_peak(&mut profile.totals, self.highest.bytes);
        }
        for (size, before) in profile.sizes.iter_mut().zip(&begin.sizes) {
            *size = size.saturating_sub(*before);
        }
        // What these say is of the whole run.
        profile.usages.clear();
        profile.marks.clear();
        profile.generations.clear();
        profile.range = Some(Range {
            from_ns: begin.elapsed_ns,
            to_ns: profile.duration_ns,
            peak_is_least: !is_higher,
        });
        Some(())
    }

    /// What each site held at the highest update of the run, or of its process.
    fn at_highest(
        &self,
        profile: &Profile,
        is_of_process: bool,
        at_end: &impl Fn(usize, Origin) -> Origin,
    ) -> HashMap<Origin, OwnPeak> {
        let held = match is_of_process {
            true => &self.held_by_process,
            false => &self.held,
        };
        let is_current = |held: &&Held| {
            let (slot, turn) = held.origin.process;
            let of_process = self.of_processes.get(slot as usize);
            match is_of_process {
                true => self.turn(slot) == turn && of_process.is_some_and(|it| it.at == held.at),
                false => held.at == self.highest.at,
            }
        };
        let mut sums: HashMap<Origin, OwnPeak> = HashMap::new();
        for (id, site) in (0..).zip(&profile.sites) {
            let found = held.get(&id).filter(is_current);
            let (key, bytes) = match found {
                Some(held) => (at_end(id as usize, held.origin), held.bytes),
                None => (origin(site, 0), live(&site.totals)),
            };
            let sum = sums.entry(key).or_default();
            *sum = OwnPeak {
                bytes: sum.bytes.saturating_add(bytes.bytes),
                error: Errors::both(sum.error, bytes.error),
                unseen: sum.unseen.saturating_add(bytes.unseen),
            };
        }
        sums
    }
}

fn origin(site: &Site, turn: u32) -> Origin {
    Origin {
        process: (site.process.0, turn),
        stack: site.stack,
        thread: site.thread,
        kind: site.kind,
    }
}

fn set_peak(totals: &mut Totals, peak: OwnPeak) {
    totals.peak_live_bytes = peak.bytes;
    totals.errors.peak_live_bytes = peak.error;
    totals.errors.unseen.peak_live_bytes = peak.unseen;
}

#[cfg(test)]
mod tests;
