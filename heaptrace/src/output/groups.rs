//! Sites put together by a name that they have in common.
//!
//! Stage: output. Knows nothing of how groups are shown.

use std::collections::{BTreeSet, HashMap};

use super::{Label, Metric, ReportInput};
use crate::join::{Errors, LocationId, Site, StackId, Totals};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grouping {
    /// What puts sites together.
    pub by: Label,
    /// What groups are ranked by.
    pub metric: Metric,
    /// Whether what is allocated below a function, a line or a module is wanted, too.
    pub cumulative: bool,
    /// How many are wanted; all, where nothing is said.
    pub top: Option<usize>,
}

/// Sites with a name in common.
#[derive(Clone, Debug)]
pub struct Group {
    /// The name, as it is.
    pub name: String,
    /// The stack, where that is what they have in common.
    pub stack: Option<StackId>,
    /// What was allocated there: for functions, lines and modules by the innermost frame itself. All
    /// groups together have what the run has.
    pub totals: Totals,
    /// What was allocated there or by anything called from there; for functions, lines and modules.
    pub cumulative: Option<Totals>,
    /// How many sites.
    pub sites: u64,
    /// How many processes.
    pub processes: u64,
}

/// The groups of a profile, the largest first, and how many there are with any of the metric.
pub fn groups(findings: &ReportInput<'_>, grouping: Grouping) -> (Vec<Group>, usize) {
    let mut builder = Builder {
        findings,
        by: grouping.by,
        cumulative: grouping.cumulative,
        groups: Vec::new(),
        pids: Vec::new(),
        ids: HashMap::new(),
        at: HashMap::new(),
        last_site: Vec::new(),
    };
    for (index, site) in findings.profile.sites.iter().enumerate() {
        builder.add(index, site);
    }
    let metric = grouping.metric;
    let value = |group: &Group| metric.of(&group.totals);
    let around = |group: &Group| group.cumulative.map_or(0, |totals| metric.of(&totals));
    let pids = builder.pids;
    let mut groups = builder.groups;
    for (group, pids) in groups.iter_mut().zip(pids) {
        group.processes = pids.len() as u64;
    }
    groups.retain(|group| value(group) > 0 || around(group) > 0);
    groups.sort_by(|a, b| {
        let keys = |group| (value(group), around(group));
        keys(b).cmp(&keys(a)).then_with(|| a.name.cmp(&b.name))
    });
    let all = groups.len();
    groups.truncate(grouping.top.unwrap_or(all));
    (groups, all)
}

struct Builder<'a> {
    findings: &'a ReportInput<'a>,
    by: Label,
    cumulative: bool,
    groups: Vec<Group>,
    /// The processes of each group.
    pids: Vec<BTreeSet<u32>>,
    ids: HashMap<(String, Option<StackId>), usize>,
    /// The groups of each location, innermost frame first.
    at: HashMap<LocationId, Vec<usize>>,
    /// The site that each group was last given: recursion counts once.
    last_site: Vec<usize>,
}

impl Builder<'_> {
    fn add(&mut self, index: usize, site: &Site) {
        if !self.by.is_of_stack() {
            let name = self.findings.caller(site, self.by);
            let id = self.id(name.unwrap_or_else(|| self.by.none().to_owned()), None);
            return self.count(id, index, site, true);
        }
        if self.by == Label::Stack {
            let frames = self.findings.stack(site.stack);
            let name = frames.first().and_then(|it| Label::Function.of_frame(it));
            let name = name.map_or_else(|| "[no stack]".to_owned(), |name| name.into_owned());
            let id = self.id(name, Some(site.stack));
            return self.count(id, index, site, true);
        }
        let mut innermost = true;
        for location in self.findings.locations(site.stack) {
            for id in self.groups_at(*location) {
                self.count(id, index, site, innermost);
                innermost = false;
            }
            if !self.cumulative && !innermost {
                break;
            }
        }
        if innermost {
            let id = self.id("[no stack]".to_owned(), None);
            self.count(id, index, site, true);
        }
    }

    /// Counts a site: as a whole, and `within` the group itself.
    fn count(&mut self, id: usize, index: usize, site: &Site, within: bool) {
        let (Some(group), Some(last), Some(pids)) = (
            self.groups.get_mut(id),
            self.last_site.get_mut(id),
            self.pids.get_mut(id),
        ) else {
            return;
        };
        if within {
            add(&mut group.totals, &site.totals);
        }
        if *last == index + 1 {
            return;
        }
        *last = index + 1;
        group.sites += 1;
        if let Some(cumulative) = &mut group.cumulative {
            add(cumulative, &site.totals);
        }
        pids.extend(self.findings.process(site).map(|process| process.pid));
    }

    fn groups_at(&mut self, location: LocationId) -> Vec<usize> {
        if let Some(known) = self.at.get(&location) {
            return known.clone();
        }
        let frames = self.findings.frames(location);
        let ids: Vec<usize> = frames
            .iter()
            .map(|frame| {
                let name = self.by.of_frame(frame);
                let name = name.map_or_else(|| self.by.none().to_owned(), |name| name.into_owned());
                self.id(name, None)
            })
            .collect();
        self.at.insert(location, ids.clone());
        ids
    }

    fn id(&mut self, name: String, stack: Option<StackId>) -> usize {
        let next = self.groups.len();
        let id = *self.ids.entry((name.clone(), stack)).or_insert(next);
        if id == next {
            let is_whole = !self.by.is_of_stack() || self.by == Label::Stack;
            self.groups.push(Group {
                name,
                stack,
                totals: Totals::default(),
                cumulative: (self.cumulative && !is_whole).then(Totals::default),
                sites: 0,
                processes: 0,
            });
            self.pids.push(BTreeSet::new());
            self.last_site.push(0);
        }
        id
    }
}

/// Adds counters up; those of a crafted file may be of any size.
pub(super) fn add(sum: &mut Totals, part: &Totals) {
    let Totals {
        allocations,
        allocated_bytes,
        frees,
        freed_bytes,
        live_allocations,
        live_bytes,
        uncertain_allocations,
        uncertain_bytes,
        peak_live_bytes,
        temporary_allocations,
        errors,
    } = part;
    for (sum, part) in [
        (&mut sum.allocations, allocations),
        (&mut sum.allocated_bytes, allocated_bytes),
        (&mut sum.frees, frees),
        (&mut sum.freed_bytes, freed_bytes),
        (&mut sum.live_allocations, live_allocations),
        (&mut sum.live_bytes, live_bytes),
        (&mut sum.uncertain_allocations, uncertain_allocations),
        (&mut sum.uncertain_bytes, uncertain_bytes),
        (&mut sum.peak_live_bytes, peak_live_bytes),
        (&mut sum.temporary_allocations, temporary_allocations),
    ] {
        *sum = sum.saturating_add(*part);
    }
    let Errors {
        allocations,
        allocated_bytes,
        frees,
        freed_bytes,
        live_allocations,
        live_bytes,
        peak_live_bytes,
        temporary_allocations,
    } = errors;
    // Which allocations of one site are sampled has nothing to do with those of another: variances add up.
    for (sum, part) in [
        (&mut sum.errors.allocations, allocations),
        (&mut sum.errors.allocated_bytes, allocated_bytes),
        (&mut sum.errors.frees, frees),
        (&mut sum.errors.freed_bytes, freed_bytes),
        (&mut sum.errors.live_allocations, live_allocations),
        (&mut sum.errors.live_bytes, live_bytes),
        (&mut sum.errors.peak_live_bytes, peak_live_bytes),
        (&mut sum.errors.temporary_allocations, temporary_allocations),
    ] {
        *sum = (*sum as f64).hypot(*part as f64).round() as u64;
    }
}
