//! Groups sites by a name that they share.
//!
//! Stage: output. Must not know how groups are printed.

use std::collections::{BTreeSet, HashMap};

use super::grouping::Grouping;
use super::label::Label;
use super::report_input::ReportInput;
use super::sum::add;
use crate::join::{LocationId, Site, StackId, Totals};

/// Sites that share a name.
#[derive(Clone, Debug)]
pub struct Group {
    /// The name, not escaped.
    pub name: String,
    /// The stack, if sites are grouped by stack.
    pub stack: Option<StackId>,
    /// Allocations of the group itself; for functions, lines and modules those of the innermost frame. The
    /// totals of all groups add up to the totals of the run.
    pub totals: Totals,
    /// Allocations of the group and of its callees; only for functions, lines and modules.
    pub cumulative: Option<Totals>,
    /// The number of sites.
    pub sites: u64,
    /// The number of processes.
    pub processes: u64,
}

/// The groups of a profile, the largest first, and the number of groups with a non-zero value.
pub fn groups(input: &ReportInput<'_>, grouping: Grouping) -> (Vec<Group>, usize) {
    let mut builder = Builder {
        input,
        by: grouping.by,
        cumulative: grouping.cumulative,
        groups: Vec::new(),
        pids: Vec::new(),
        ids: HashMap::new(),
        at: HashMap::new(),
        last_site: Vec::new(),
    };
    for (index, site) in input.profile.sites.iter().enumerate() {
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
    input: &'a ReportInput<'a>,
    by: Label,
    cumulative: bool,
    groups: Vec<Group>,
    /// The process ids of each group.
    pids: Vec<BTreeSet<u32>>,
    ids: HashMap<(String, Option<StackId>), usize>,
    /// The groups of each location, innermost frame first.
    at: HashMap<LocationId, Vec<usize>>,
    /// The last site that each group counted, plus one. It makes recursion count once.
    last_site: Vec<usize>,
}

impl Builder<'_> {
    fn add(&mut self, index: usize, site: &Site) {
        if !self.by.is_of_stack() {
            let name = self.input.caller(site, self.by);
            let id = self.id(name.unwrap_or_else(|| self.by.none().to_owned()), None);
            return self.count(id, index, site, true);
        }
        if self.by == Label::Stack {
            let frames = self.input.stack(site.stack);
            let name = frames.first().and_then(|it| Label::Function.of_frame(it));
            let name = name.map_or_else(|| "[no stack]".to_owned(), |name| name.into_owned());
            let id = self.id(name, Some(site.stack));
            return self.count(id, index, site, true);
        }
        let mut innermost = true;
        for location in self.input.locations(site.stack) {
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

    /// Counts a site in the group's cumulative totals and, if `within`, in its own totals.
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
        pids.extend(self.input.process(site).map(|process| process.pid));
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
