//! Groups sites by a name that they share.
//!
//! Stage: output. Must not know how groups are printed.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use super::grouping::Grouping;
use super::label::Label;
use super::own_peaks::has_own_peaks;
use super::report_input::ReportInput;
use super::shorten;
use super::shown::is_interpreted;
use super::site_types::UNKNOWN;
use super::sum::Sum;
use super::wrappers::{Part, user_frame};
use crate::join::{LocationId, ProcessId, Site, StackId, Totals};
use crate::text::escape;

/// Sites that share a name.
#[derive(Clone, Debug)]
pub struct Group {
    /// The name, not escaped.
    pub name: String,
    /// The name by which the file was started as a program, if it has another name itself; only for modules.
    pub module_name: Option<String>,
    /// The source file of a function that an interpreter runs, not escaped; empty if it is unknown. Functions of the same name in
    /// different files are different groups. `None` for machine code.
    pub source: Option<String>,
    /// The stack, if sites are grouped by stack.
    pub stack: Option<StackId>,
    /// Allocations of the group itself; for functions, lines and modules those of the user's frame. The
    /// totals of all groups add up to the totals of the run.
    pub totals: Totals,
    /// Allocations of the group and of its callees; only for functions, lines and modules.
    pub cumulative: Option<Totals>,
    /// The number of sites.
    pub sites: u64,
    /// The number of processes.
    pub processes: u64,
    /// The share of time in which its processes were probed, if any of them was paused at times; only where
    /// processes are grouped.
    pub covered: Option<Covered>,
}

impl Group {
    /// The name for people, not escaped: a program's file, and the name that started it.
    pub fn title(&self) -> Cow<'_, str> {
        match &self.module_name {
            Some(started_as) => format!("{} ({started_as})", self.name).into(),
            None => self.name.as_str().into(),
        }
    }

    /// The title in at most `width` characters, if it is a function that an interpreter runs: `load (/srv/app.py)`. Safe to print.
    pub fn source_title(&self, width: usize) -> Option<String> {
        let file = escape(self.source.as_deref()?);
        let name = escape(&self.name);
        let room = width.saturating_sub(name.chars().count() + " ()".len());
        // A part of a path that has not even a file's name says little.
        const LEAST: usize = 12;
        if file.is_empty() || room < LEAST.min(file.chars().count()) {
            return Some(shorten::function(&name, width));
        }
        Some(format!("{name} ({})", shorten::cut_front(&file, room)))
    }

    /// The memory that may have been freed during a pause: of the group itself, or of its callees.
    pub fn uncertain_bytes(&self) -> u64 {
        let around = self.cumulative.map_or(0, |totals| totals.uncertain_bytes);
        self.totals.uncertain_bytes.max(around)
    }
}

/// How long the paused processes of a group were probed, of the time since each was first paused. Processes that
/// ended are left out: when is not recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Covered {
    /// Nanoseconds in which they were probed.
    pub probed_ns: u64,
    /// Nanoseconds since they were first paused.
    pub since_ns: u64,
}

/// The largest groups of a profile, the largest first, and the number of groups with a non-zero value. A group
/// whose value is zero for certain is left out.
pub fn groups(input: &ReportInput<'_>, grouping: Grouping) -> (Vec<Group>, usize) {
    let metric = grouping.metric;
    let mut groups = all_groups(input, grouping);
    groups.retain(|group| {
        let around = group.cumulative.map_or(0, |totals| metric.rank(&totals));
        metric.rank(&group.totals) > 0 || around > 0
    });
    let all = groups.len();
    keep_top(&mut groups, grouping);
    (groups, all)
}

/// Keeps the first groups. How much has no known type must be seen, so that group stays in any case.
pub(super) fn keep_top(groups: &mut Vec<Group>, grouping: Grouping) {
    let top = grouping.top.unwrap_or(usize::MAX).min(groups.len());
    let rest = groups.split_off(top);
    let unknown = rest.into_iter().find(|it| it.name == UNKNOWN);
    groups.extend(unknown.filter(|_| grouping.by.is_of_type()));
}

/// The groups that sites belong to themselves, in any order, and for each site the index of its group.
pub(super) fn groups_of_sites(input: &ReportInput<'_>, by: Label) -> (Vec<Group>, Vec<usize>) {
    let builder = Builder::whole(input, by, false);
    (builder.groups, builder.of_sites)
}

/// All groups of a profile, the largest first, also those whose value is zero.
pub fn all_groups(input: &ReportInput<'_>, grouping: Grouping) -> Vec<Group> {
    let builder = Builder::whole(input, grouping.by, grouping.cumulative);
    let Builder {
        mut groups,
        pids,
        paused,
        ..
    } = builder;
    for ((group, pids), paused) in groups.iter_mut().zip(pids).zip(paused) {
        group.processes = pids.len() as u64;
        group.covered = covered(input, &paused);
    }
    let metric = grouping.metric;
    let keys = |group: &Group| {
        let around = group.cumulative.map_or(0, |totals| metric.rank(&totals));
        (metric.rank(&group.totals), around)
    };
    let names = |a: &Group, b: &Group| (&a.name, &a.source).cmp(&(&b.name, &b.source));
    // Names that only wrappers have were met, but no site counts for them.
    groups.retain(|group| group.sites > 0);
    groups.sort_by(|a, b| keys(b).cmp(&keys(a)).then_with(|| names(a, b)));
    groups
}

/// Whether the bytes at the peak of groups are those at the peaks of their processes, each at its own time.
pub(super) fn peaks_are_own(input: &ReportInput<'_>, by: Label) -> bool {
    by.is_of_process() && has_own_peaks(input.profile)
}

/// How long these processes were probed since each was first paused; `None` if there are none.
fn covered(input: &ReportInput<'_>, paused: &BTreeSet<ProcessId>) -> Option<Covered> {
    let mut sum: Option<Covered> = None;
    for id in paused {
        let sum = sum.get_or_insert_default();
        let process = input.profile.processes.get(id.0 as usize);
        let running = process.filter(|process| !process.ended);
        let Some(duty_cycle) = running.and_then(|process| process.duty_cycle) else {
            continue;
        };
        let since_ns = input.profile.duration_ns.saturating_sub(duty_cycle.from_ns);
        let probed_ns = since_ns.saturating_sub(duty_cycle.unprobed_ns);
        sum.since_ns = sum.since_ns.saturating_add(since_ns);
        sum.probed_ns = sum.probed_ns.saturating_add(probed_ns);
    }
    sum
}

/// What tells a group from all others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Key {
    name: String,
    source: Option<String>,
    stack: Option<StackId>,
}

impl From<String> for Key {
    fn from(name: String) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }
}

struct Builder<'a> {
    input: &'a ReportInput<'a>,
    by: Label,
    cumulative: bool,
    groups: Vec<Group>,
    /// The totals of each group, and its cumulative ones.
    sums: Vec<[Sum; 2]>,
    /// The process ids of each group.
    pids: Vec<BTreeSet<u32>>,
    /// Whether sites count with their bytes at the peak of their own process. The parts of processes in the run's
    /// peak would show a process that had ended by then as nothing.
    peaks_are_own: bool,
    /// The processes of each group that were paused at times.
    paused: Vec<BTreeSet<ProcessId>>,
    ids: HashMap<Key, usize>,
    /// The groups of each location, innermost frame first.
    at: HashMap<LocationId, Vec<usize>>,
    /// The parts of the frames of each location.
    parts: HashMap<LocationId, Vec<Part>>,
    /// The last site that each group counted, plus one. It makes recursion count once.
    last_site: Vec<usize>,
    /// The group that each site counts in itself.
    of_sites: Vec<usize>,
}

impl<'a> Builder<'a> {
    /// The groups of all sites.
    fn whole(input: &'a ReportInput<'a>, by: Label, cumulative: bool) -> Self {
        let mut builder = Self {
            input,
            by,
            cumulative,
            groups: Vec::new(),
            sums: Vec::new(),
            pids: Vec::new(),
            peaks_are_own: peaks_are_own(input, by),
            paused: Vec::new(),
            ids: HashMap::new(),
            at: HashMap::new(),
            parts: HashMap::new(),
            last_site: Vec::new(),
            of_sites: vec![0; input.profile.sites.len()],
        };
        for (index, site) in input.profile.sites.iter().enumerate() {
            builder.add(index, site);
        }
        for (group, [own, around]) in builder.groups.iter_mut().zip(&builder.sums) {
            group.totals = own.totals();
            group.cumulative = group.cumulative.map(|_| around.totals());
        }
        builder
    }

    fn add(&mut self, index: usize, site: &Site) {
        if !self.by.is_of_stack() {
            let name = self.input.caller(site, self.by);
            let id = self.id(name.unwrap_or_else(|| self.by.none().to_owned()).into());
            return self.count(id, index, site, true);
        }
        if self.by == Label::Stack {
            let frames = self.input.stack(site.stack);
            let user = frames.get(self.input.user_frame(site.stack, &frames));
            let name = user.and_then(|it| Label::Function.of_frame(it));
            let name = name.map_or_else(|| "[no stack]".to_owned(), |name| name.into_owned());
            let id = self.id(Key {
                stack: Some(site.stack),
                ..name.into()
            });
            return self.count(id, index, site, true);
        }
        let mut innermost = true;
        let mut skipped = self.skipped(site.stack);
        for location in self.input.locations(site.stack).iter() {
            let here = self.groups_at(*location);
            let passed = skipped.min(here.len());
            skipped -= passed;
            for id in &here[passed..] {
                self.count(*id, index, site, innermost);
                innermost = false;
            }
            if !self.cumulative && !innermost {
                break;
            }
        }
        if innermost {
            let id = self.id("[no stack]".to_owned().into());
            self.count(id, index, site, true);
        }
    }

    /// Counts a site in the group's cumulative totals and, if `within`, in its own totals.
    fn count(&mut self, id: usize, index: usize, site: &Site, within: bool) {
        let (Some(group), Some([own, around]), Some(last), Some(pids), Some(paused)) = (
            self.groups.get_mut(id),
            self.sums.get_mut(id),
            self.last_site.get_mut(id),
            self.pids.get_mut(id),
            self.paused.get_mut(id),
        ) else {
            return;
        };
        if let Some(of_site) = self.of_sites.get_mut(index).filter(|_| within) {
            *of_site = id;
        }
        if within && self.peaks_are_own {
            own.add(&site.at_own_peak());
        } else if within {
            own.add(&site.totals);
        }
        if *last == index + 1 {
            return;
        }
        *last = index + 1;
        group.sites += 1;
        if group.cumulative.is_some() {
            around.add(&site.totals);
        }
        let Some(process) = self.input.process(site) else {
            return;
        };
        pids.insert(process.pid);
        if self.by.is_of_process() && process.duty_cycle.is_some() {
            paused.insert(site.process);
        }
    }

    /// The number of wrappers at the inner end of a stack, which are part of no group.
    fn skipped(&mut self, stack: StackId) -> usize {
        let input = self.input;
        // What an interpreter does depends on the frames around.
        if is_interpreted(input.profile, input.all_locations(stack)) {
            return input.user_frame(stack, &input.stack(stack));
        }
        let mut parts = Vec::new();
        for location in input.locations(stack).iter() {
            let here = self.parts.entry(*location).or_insert_with(|| {
                let frames = input.frames(*location);
                frames.iter().map(|it| input.wrappers.part(it)).collect()
            });
            parts.extend_from_slice(here);
            if parts.iter().any(|part| *part != Part::Wrapper) {
                break;
            }
        }
        user_frame(parts)
    }

    fn groups_at(&mut self, location: LocationId) -> Vec<usize> {
        if let Some(known) = self.at.get(&location) {
            return known.clone();
        }
        let frames = self.input.frames(location);
        let ids: Vec<usize> = frames
            .iter()
            .map(|frame| {
                let name = self.by.of_frame(frame);
                let name = name.map_or_else(|| self.by.none().to_owned(), |name| name.into_owned());
                let source = (self.by == Label::Function && frame.language.is_some())
                    .then(|| frame.file.unwrap_or_default().to_owned());
                let id = self.id(Key {
                    source,
                    ..name.into()
                });
                if self.by == Label::Module
                    && let Some(group) = self.groups.get_mut(id)
                    && let Some(module) = frame.module.filter(|it| !it.started_as.is_empty())
                {
                    group.module_name = Some(module.started_as.clone());
                }
                id
            })
            .collect();
        self.at.insert(location, ids.clone());
        ids
    }

    fn id(&mut self, key: Key) -> usize {
        let next = self.groups.len();
        let id = *self.ids.entry(key.clone()).or_insert(next);
        if id == next {
            let is_whole = !self.by.is_of_stack() || self.by == Label::Stack;
            self.groups.push(Group {
                name: key.name,
                module_name: None,
                source: key.source,
                stack: key.stack,
                totals: Totals::default(),
                cumulative: (self.cumulative && !is_whole).then(Totals::default),
                sites: 0,
                processes: 0,
                covered: None,
            });
            self.sums.push(Default::default());
            self.pids.push(BTreeSet::new());
            self.paused.push(BTreeSet::new());
            self.last_site.push(0);
        }
        id
    }
}
