//! The profile: the results of a run, before addresses get names.
//!
//! Stage: profile. A profile is made of [`Update`]s, which come from a running join or from a data file.
//! Knows nothing of symbols and of outputs.

use std::collections::{BTreeMap, HashSet};

use thiserror::Error;

use crate::join::{
    Exceeded, Function, Generation, GenerationId, Location, Mark, Module, Process, ProcessId,
    Quality, RateChange, Reachability, Site, SiteId, Stack, Totals, Update, Usage,
};
use crate::text;

/// How allocations were selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Every allocation was recorded.
    Exact,
    /// Allocations were sampled at random, one in so many bytes.
    Sampled {
        /// Mean bytes between samples.
        mean_bytes: u64,
    },
}

impl Mode {
    /// Whether numbers are estimates.
    pub fn is_sampled(self) -> bool {
        matches!(self, Self::Sampled { .. })
    }
}

/// The sizes of allocations that were recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeRange {
    /// The smallest.
    pub min: u64,
    /// The largest.
    pub max: u64,
}

impl SizeRange {
    /// All sizes.
    pub const ALL: Self = Self {
        min: 0,
        max: u64::MAX,
    };
}

/// Facts that are known when a run begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunInfo {
    /// Version of heaptrace that made the record.
    pub version: String,
    /// How allocations were selected.
    pub mode: Mode,
    /// Which sizes were recorded.
    pub sizes: SizeRange,
    /// When the run began, nanoseconds since the Unix epoch.
    pub started_unix_ns: u64,
    /// The target, as the user gave it: `--pid 12`, `--all`, or the command.
    pub target: String,
    /// Kernel release of the machine.
    pub kernel: String,
}

impl RunInfo {
    /// The facts of an exact run of this target, for tests.
    #[cfg(test)]
    pub(crate) fn exact(target: &str) -> Self {
        Self {
            version: "0.1.0".to_owned(),
            mode: Mode::Exact,
            sizes: SizeRange::ALL,
            started_unix_ns: 1_700_000_000_123_456_789,
            target: target.to_owned(),
            kernel: "6.18.0".to_owned(),
        }
    }

    /// Whether some allocations were left out on purpose. Then the free of an unknown block means nothing.
    pub fn is_partial(&self) -> bool {
        self.mode.is_sampled() || self.sizes != SizeRange::ALL
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// It ended in order: the profile has everything that was recorded.
    Orderly,
    /// The record ends early: its writer was killed, or the disk was full.
    CutOff,
    /// The run continued: the profile is a snapshot of it.
    WentOn,
}

/// A part of a run, between two of its updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The update at its beginning, nanoseconds since the run began; 0 for the beginning of the run.
    pub from_ns: u64,
    /// The update at its end.
    pub to_ns: u64,
    /// Whether the bytes at the peak are the most at an update of the range, and not the most of all: the peak of the run was before it.
    pub peak_is_least: bool,
}

/// The totals at some time of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Nanoseconds since the run began.
    pub elapsed_ns: u64,
    /// Totals of the run until then.
    pub totals: Totals,
}

/// The results of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// How the run was made.
    pub info: RunInfo,
    /// How it ended.
    pub end: RunEnd,
    /// How long it took.
    pub duration_ns: u64,
    /// The part of the run that it is restricted to. What was allocated and freed is that of this time, what is live is what was live at
    /// its end; the quality is that of the whole run.
    pub range: Option<Range>,
    /// Files that were mapped executable.
    pub modules: Vec<Module>,
    /// Functions that interpreters run.
    pub functions: Vec<Function>,
    /// Places in code.
    pub locations: Vec<Location>,
    /// Call stacks.
    pub stacks: Vec<Stack>,
    /// Names of threads.
    pub threads: Vec<String>,
    /// Processes.
    pub processes: Vec<Process>,
    /// Allocation sites.
    pub sites: Vec<Site>,
    /// How sites use their blocks, by their `slot`. Older files have none.
    pub usages: BTreeMap<SiteId, Usage>,
    /// Marks, in their order.
    pub marks: Vec<Mark>,
    /// Limits of live memory that were exceeded, in the order of time.
    pub exceeded: Vec<Exceeded>,
    /// What sites allocated after each mark.
    pub generations: Vec<Generation>,
    /// What the last search of each process for blocks that nothing points to has found.
    pub reachability: Vec<Reachability>,
    /// How often sizes of each class were asked for.
    pub sizes: Vec<u64>,
    /// Changes of the sampling rate, in their order.
    pub rates: Vec<RateChange>,
    /// Totals of the run.
    pub totals: Totals,
    /// How far the numbers can be trusted.
    pub quality: Quality,
}

/// Why an update can't follow the updates before.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum FoldError {
    /// A record refers to a table entry that does not exist.
    #[error("a {what} refers to {table} entry {index}, but there are only {len}")]
    Dangling {
        /// The record.
        what: &'static str,
        /// The table.
        table: &'static str,
        /// The entry.
        index: u32,
        /// The number of entries.
        len: usize,
    },
    /// A process or site skips ids.
    #[error("{table} entry {index} comes before entry {len}")]
    Gap {
        /// The table.
        table: &'static str,
        /// Its id.
        index: u32,
        /// The next id.
        len: usize,
    },
}

impl Profile {
    /// An empty profile of a run that has just begun.
    pub fn new(info: RunInfo) -> Self {
        Self {
            info,
            end: RunEnd::CutOff,
            duration_ns: 0,
            range: None,
            modules: Vec::new(),
            functions: Vec::new(),
            locations: Vec::new(),
            stacks: Vec::new(),
            threads: Vec::new(),
            processes: Vec::new(),
            sites: Vec::new(),
            usages: BTreeMap::new(),
            marks: Vec::new(),
            exceeded: Vec::new(),
            generations: Vec::new(),
            reachability: Vec::new(),
            sizes: Vec::new(),
            rates: Vec::new(),
            totals: Totals::default(),
            quality: Quality::default(),
        }
    }

    /// The rate changes that begin with the rate of the run; empty if every allocation was recorded.
    pub fn all_rates(&self) -> Vec<RateChange> {
        let Mode::Sampled { mean_bytes } = self.info.mode else {
            return Vec::new();
        };
        let first = RateChange {
            at_ns: 0,
            process: None,
            mean_bytes,
        };
        // A rate that follows the load begins with another one.
        let begins = |it: &RateChange| it.at_ns == 0 && it.process.is_none();
        let begins_otherwise = self.rates.first().is_some_and(begins);
        std::iter::once(first)
            .skip(begins_otherwise.into())
            .chain(self.rates.iter().copied())
            .collect()
    }

    /// How allocations were selected, for a headline: `exact`, `sampled, one in 512.0 KiB`.
    pub fn chosen(&self) -> String {
        let means = || self.all_rates().into_iter().map(|it| it.mean_bytes);
        let mut words = match (means().min(), means().max()) {
            (Some(least), Some(most)) if least < most => format!(
                "sampled, one in {} to {}",
                text::bytes(least),
                text::bytes(most)
            ),
            (Some(mean), _) => format!("sampled, one in {}", text::bytes(mean)),
            _ => "exact".to_owned(),
        };
        let sizes = self.info.sizes;
        if sizes.min > 0 {
            words.push_str(&format!(", sizes from {}", text::bytes(sizes.min)));
        }
        if sizes.max < u64::MAX {
            words.push_str(&format!(", sizes up to {}", text::bytes(sizes.max)));
        }
        words
    }

    /// The update that leads to this profile from an empty one.
    pub fn to_update(&self) -> Update {
        Update {
            elapsed_ns: self.duration_ns,
            modules: self.modules.clone(),
            started: Vec::new(),
            functions: self.functions.clone(),
            locations: self.locations.clone(),
            stacks: self.stacks.clone(),
            threads: self.threads.clone(),
            processes: (0..).map(ProcessId).zip(self.processes.clone()).collect(),
            sites: (0..).map(SiteId).zip(self.sites.clone()).collect(),
            usages: self.usages.clone().into_iter().collect(),
            marks: self.marks.clone(),
            exceeded: self.exceeded.clone(),
            generations: (0..)
                .map(GenerationId)
                .zip(self.generations.clone())
                .collect(),
            blocks: Vec::new(),
            live_blocks: None,
            reachability: self.reachability.clone(),
            sizes: self.sizes.clone(),
            rates: self.rates.clone(),
            totals: self.totals,
            quality: self.quality.clone(),
        }
    }

    /// Applies an update.
    ///
    /// Every reference is checked, so that a reader of the profile can index its tables.
    pub fn fold(&mut self, update: Update) -> Result<(), FoldError> {
        self.duration_ns = update.elapsed_ns;
        self.modules.extend(update.modules);
        for (id, name) in update.started {
            in_table("name", "module", id.0, self.modules.len())?;
            if let Some(module) = self.modules.get_mut(id.0 as usize) {
                module.started_as = name;
            }
        }
        self.functions.extend(update.functions);
        for location in &update.locations {
            if let Some(module) = location.module {
                in_table("location", "module", module.0, self.modules.len())?;
            }
            if let Some(function) = location.function {
                in_table("location", "function", function.0, self.functions.len())?;
            }
        }
        self.locations.extend(update.locations);
        for stack in &update.stacks {
            for location in &stack.locations {
                in_table("stack", "location", location.0, self.locations.len())?;
            }
        }
        self.stacks.extend(update.stacks);
        self.threads.extend(update.threads);
        let mut replaced = HashSet::new();
        for (id, process) in update.processes {
            let old = self.processes.get(id.0 as usize);
            let is_it = |old: &Process| {
                (old.pid, old.start_time_ns) == (process.pid, process.start_time_ns)
            };
            if !old.is_none_or(is_it) {
                replaced.insert(id);
            }
            upsert(&mut self.processes, "process", id.0, process)?;
        }
        for (id, site) in update.sites {
            self.check(&site, "site")?;
            upsert(&mut self.sites, "site", id.0, site)?;
        }
        for (id, usage) in update.usages {
            in_table("usage", "site", id.0, self.sites.len())?;
            self.usages.insert(id, usage);
        }
        if !update.marks.is_empty() {
            self.marks = update.marks;
        }
        self.exceeded.extend(update.exceeded);
        for (id, generation) in update.generations {
            self.check(&generation.site, "generation")?;
            upsert(&mut self.generations, "generation", id.0, generation)?;
        }
        for change in &update.rates {
            if let Some(process) = change.process {
                in_table("rate", "process", process.0, self.processes.len())?;
            }
        }
        for found in &update.reachability {
            in_table("search", "process", found.process.0, self.processes.len())?;
            for site in &found.sites {
                in_table("search", "stack", site.stack.0, self.stacks.len())?;
            }
        }
        // The last search of each process counts.
        let mut searched = HashSet::new();
        let mut found = update.reachability;
        found.reverse();
        found.retain(|it| searched.insert(it.process));
        found.reverse();
        if !searched.is_empty() || !replaced.is_empty() {
            let is_old = |id| searched.contains(&id) || replaced.contains(&id);
            self.reachability.retain(|it| !is_old(it.process));
        }
        self.reachability.extend(found);
        self.rates.extend(update.rates);
        self.sizes = update.sizes;
        self.totals = update.totals;
        self.quality = update.quality;
        Ok(())
    }

    /// How a site uses its blocks, if that was recorded.
    pub fn usage(&self, site: &Site) -> Option<&Usage> {
        self.usages.get(&site.slot)
    }

    /// Checks what a site refers to.
    fn check(&self, site: &Site, what: &'static str) -> Result<(), FoldError> {
        in_table(what, "process", site.process.0, self.processes.len())?;
        in_table(what, "stack", site.stack.0, self.stacks.len())?;
        if let Some(thread) = site.thread {
            in_table(what, "thread", thread.0, self.threads.len())?;
        }
        Ok(())
    }

    /// Removes the vacant slots from the tables, and returns the new id of each process. No update may be folded after that.
    pub fn settle(&mut self) -> Vec<Option<ProcessId>> {
        // In a range, a site may only have freed.
        if self.range.is_none() {
            self.sites.retain(|site| site.totals.allocations != 0);
        }
        let mut usages = std::mem::take(&mut self.usages);
        for (id, site) in (0..).map(SiteId).zip(&mut self.sites) {
            if let Some(usage) = usages.remove(&site.slot) {
                self.usages.insert(id, usage);
            }
            site.slot = id;
        }
        self.generations
            .retain(|it| it.site.totals.allocations != 0);
        let mut is_kept: Vec<bool> = self.processes.iter().map(|it| !it.is_vacant()).collect();
        let generations = self.generations.iter().map(|it| &it.site);
        for site in self.sites.iter().chain(generations) {
            if let Some(is_kept) = is_kept.get_mut(site.process.0 as usize) {
                *is_kept = true;
            }
        }
        self.keep_processes(&is_kept)
    }

    /// Keeps some of the processes, and returns the new id of each. Sites of the others must be gone.
    pub fn keep_processes(&mut self, is_kept: &[bool]) -> Vec<Option<ProcessId>> {
        let mut next = 0;
        let new_ids: Vec<Option<ProcessId>> = is_kept
            .iter()
            .map(|is_kept| {
                let id = ProcessId(next);
                next += u32::from(*is_kept);
                is_kept.then_some(id)
            })
            .collect();
        let generations = self.generations.iter_mut().map(|it| &mut it.site);
        for site in self.sites.iter_mut().chain(generations) {
            if let Some(Some(id)) = new_ids.get(site.process.0 as usize) {
                site.process = *id;
            }
        }
        self.reachability.retain_mut(|it| {
            let new = new_ids.get(it.process.0 as usize).copied().flatten();
            it.process = new.unwrap_or_default();
            new.is_some()
        });
        let mut is_kept = is_kept.iter().copied();
        self.processes.retain(|_| is_kept.next().unwrap_or(true));
        new_ids
    }
}

fn in_table(
    what: &'static str,
    table: &'static str,
    index: u32,
    len: usize,
) -> Result<(), FoldError> {
    if (index as usize) < len {
        Ok(())
    } else {
        Err(FoldError::Dangling {
            what,
            table,
            index,
            len,
        })
    }
}

fn upsert<T>(
    table: &mut Vec<T>,
    name: &'static str,
    index: u32,
    value: T,
) -> Result<(), FoldError> {
    let len = table.len();
    match table.get_mut(index as usize) {
        Some(slot) => *slot = value,
        None if index as usize == len => table.push(value),
        None => {
            return Err(FoldError::Gap {
                table: name,
                index,
                len,
            });
        }
    }
    Ok(())
}
