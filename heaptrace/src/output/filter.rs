//! Filters: what of a profile is looked at.
//!
//! Stage: output. Takes a profile and gives one of the sites that pass, whose totals add up again:
//! no format has to know of filters, but to say that there were some.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::str::FromStr;

use super::cgroup::Place;
use super::glob::Glob;
use super::groups::add;
use super::report_input::{ReportInput, StackFrame, file_name, kind_name};
use super::{Label, shorten};
use crate::join::{LocationId, Process, ProcessId, Totals};
use crate::profile::{Profile, Symbols};

/// A name that is asked for: `function=GLOB`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    label: Label,
    glob: Glob,
}

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((key, glob)) = text.split_once('=') else {
            return Err(format!("write it as KEY=GLOB, e.g. function={text}"));
        };
        let label = Label::from_name(key).filter(|label| *label != Label::Stack);
        let Some(label) = label else {
            let keys = Label::ALL.map(Label::name);
            return Err(format!(
                "`{key}` is no key; there are {}",
                keys[1..].join(", ")
            ));
        };
        if glob.is_empty() {
            return Err(format!("no name is empty; write it as {key}=GLOB"));
        }
        Ok(Self {
            label,
            glob: Glob::new(glob),
        })
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.label.name(), self.glob.as_str())
    }
}

impl Filter {
    /// Whether a process is asked for; by more names than the one that groups it.
    fn takes_process(&self, process: &Process) -> bool {
        let is = |name: &str| !name.is_empty() && self.glob.matches(name);
        match self.label {
            Label::Pid => is(&process.pid.to_string()),
            Label::Container => Place::of(&process.cgroup)
                .container
                .is_some_and(|it| is(&it.id) || is(it.short()) || is(it.runtime)),
            label => label.of_process(process).is_some_and(|name| is(&name)),
        }
    }

    /// Whether a frame is asked for; by more names than the one that groups it.
    fn takes_frame(&self, frame: &StackFrame<'_>) -> bool {
        let Some(name) = self.label.of_frame(frame) else {
            return false;
        };
        if self.glob.matches(&name) {
            return true;
        }
        match self.label {
            Label::Function => self.glob.matches(shorten::bare(&name)),
            Label::Line | Label::Module => self.glob.matches(file_name(&name)),
            _ => false,
        }
    }
}

/// What of a profile passes all filters: its sites, and the processes that are asked for and, where functions
/// are, have one of them. Totals are the sums over those sites, the peak is what of the run's peak was theirs.
pub fn select(mut profile: Profile, symbols: &Symbols, filters: &[Filter]) -> Profile {
    if filters.is_empty() {
        return profile;
    }
    let (of_frames, of_callers): (Vec<_>, Vec<_>) = filters
        .iter()
        .partition(|filter| filter.label.is_of_stack());
    let (of_kinds, of_callers): (Vec<_>, Vec<_>) = of_callers
        .into_iter()
        .partition(|filter| filter.label == Label::Kind);
    let (of_threads, of_processes): (Vec<_>, Vec<_>) = of_callers
        .into_iter()
        .partition(|filter| filter.label == Label::Thread);
    // Of some sites of a process, that is, and not of others.
    let is_of_sites = !of_frames.is_empty() || !of_threads.is_empty() || !of_kinds.is_empty();
    let takes = |process: &Process| of_processes.iter().all(|it| it.takes_process(process));
    let mut kept: Vec<bool> = profile.processes.iter().map(takes).collect();
    let mut places = Places::new(&profile, symbols, &of_frames);
    let mut sites: Vec<_> = profile
        .sites
        .iter()
        .filter(|site| kept.get(site.process.0 as usize) == Some(&true))
        .filter(|site| {
            let name = site
                .thread
                .and_then(|id| profile.threads.get(id.0 as usize));
            let is = |it: &&Filter| name.is_some_and(|name| it.glob.matches(name));
            of_threads.iter().all(is)
        })
        .filter(|site| {
            let name = kind_name(site.kind);
            of_kinds.iter().all(|it| it.glob.matches(name))
        })
        .filter(|site| places.pass(site.stack))
        .copied()
        .collect();
    if is_of_sites {
        let with_sites: HashSet<_> = sites.iter().map(|site| site.process.0 as usize).collect();
        for (index, kept) in kept.iter_mut().enumerate() {
            *kept &= with_sites.contains(&index);
        }
    }
    // Processes move together, and sites name them by their new place.
    let mut moved = HashMap::new();
    let mut processes = Vec::new();
    for (index, process) in std::mem::take(&mut profile.processes)
        .into_iter()
        .enumerate()
    {
        if kept.get(index) == Some(&true) {
            moved.insert(index as u32, ProcessId(processes.len() as u32));
            processes.push(process);
        }
    }
    let mut totals = Totals::default();
    let mut of_process = vec![Totals::default(); processes.len()];
    for site in &mut sites {
        if let Some(process) = moved.get(&site.process.0) {
            site.process = *process;
        }
        add(&mut totals, &site.totals);
        if let Some(sum) = of_process.get_mut(site.process.0 as usize) {
            add(sum, &site.totals);
        }
    }
    // Without some of its sites, a process has no highest point of its own that is known.
    if is_of_sites {
        for (process, totals) in processes.iter_mut().zip(of_process) {
            process.totals = totals;
        }
    }
    Profile {
        processes,
        sites,
        totals,
        ..profile
    }
}

/// Which stacks pass the filters that are of frames, each location looked at once.
struct Places<'a> {
    findings: ReportInput<'a>,
    filters: &'a [&'a Filter],
    /// Which filters have what they ask for at a location, a bit each.
    known: HashMap<LocationId, u64>,
}

impl<'a> Places<'a> {
    fn new(profile: &'a Profile, symbols: &'a Symbols, filters: &'a [&'a Filter]) -> Self {
        Self {
            findings: ReportInput::new(profile, symbols),
            filters,
            known: HashMap::new(),
        }
    }

    fn pass(&mut self, stack: crate::join::StackId) -> bool {
        self.filters.chunks(64).all(|filters| {
            let all = u64::MAX >> (64 - filters.len());
            let mut found = 0;
            for location in self.findings.locations(stack) {
                found |= self.at(*location, filters);
                if found == all {
                    return true;
                }
            }
            false
        })
    }

    fn at(&mut self, location: LocationId, filters: &[&Filter]) -> u64 {
        // More filters than bits are asked for by nobody; they are only not remembered.
        let remembered = self.filters.len() <= 64;
        if remembered && let Some(known) = self.known.get(&location) {
            return *known;
        }
        let mut found = 0;
        for frame in self.findings.frames(location) {
            for (bit, filter) in filters.iter().enumerate() {
                found |= u64::from(filter.takes_frame(&frame)) << bit;
            }
        }
        if remembered {
            self.known.insert(location, found);
        }
        found
    }
}
