//! Selects the part of a profile that passes the filters.
//!
//! Stage: output. The result is a profile whose totals add up again, so formats need no code for filters.

use std::collections::{HashMap, HashSet};

use super::filter::Filter;
use super::label::{Label, kind_name};
use super::own_peaks::has_own_peaks;
use super::report_input::ReportInput;
use super::sum::add;
use crate::join::{LocationId, Process, ProcessId, StackId, Totals};
use crate::profile::{Profile, Symbols};

/// Returns the sites that pass all filters, and the matching processes. A filter on sites (stack, thread or
/// kind) also drops the processes that have no such site. Totals are the sums over these sites. Their peak is the
/// part of the run's peak; with a filter on processes, it is the part of each process's own peak, because the
/// selected processes may have had little at the peak of all.
pub fn select(mut profile: Profile, symbols: &Symbols, filters: &[Filter]) -> Profile {
    if filters.is_empty() {
        return profile;
    }
    let (of_frames, of_callers): (Vec<_>, Vec<_>) = filters
        .iter()
        .partition(|filter| filter.label().is_of_stack());
    let (of_kinds, of_callers): (Vec<_>, Vec<_>) = of_callers
        .into_iter()
        .partition(|filter| filter.label() == Label::Kind);
    let (of_threads, of_processes): (Vec<_>, Vec<_>) = of_callers
        .into_iter()
        .partition(|filter| filter.label() == Label::Thread);
    // These filters select some sites of a process and not others.
    let peaks_are_own = !of_processes.is_empty() && has_own_peaks(&profile);
    let is_of_sites = !of_frames.is_empty() || !of_threads.is_empty() || !of_kinds.is_empty();
    let matches = |process: &Process| of_processes.iter().all(|it| it.matches_process(process));
    let mut kept: Vec<bool> = profile.processes.iter().map(matches).collect();
    let mut stack_filter = StackFilter::new(&profile, symbols, &of_frames);
    let mut sites: Vec<_> = profile
        .sites
        .iter()
        .filter(|site| kept.get(site.process.0 as usize) == Some(&true))
        .filter(|site| {
            let name = site
                .thread
                .and_then(|id| profile.threads.get(id.0 as usize));
            let is = |it: &&Filter| name.is_some_and(|name| it.matches(name));
            of_threads.iter().all(is)
        })
        .filter(|site| {
            let name = kind_name(site.kind);
            of_kinds.iter().all(|it| it.matches(name))
        })
        .filter(|site| stack_filter.pass(site.stack))
        .copied()
        .collect();
    if is_of_sites {
        let with_sites: HashSet<_> = sites.iter().map(|site| site.process.0 as usize).collect();
        for (index, kept) in kept.iter_mut().enumerate() {
            *kept &= with_sites.contains(&index);
        }
    }
    // Remaining processes get new indexes, which sites refer to.
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
        if peaks_are_own {
            site.totals = site.at_own_peak();
        }
        add(&mut totals, &site.totals);
        if let Some(sum) = of_process.get_mut(site.process.0 as usize) {
            add(sum, &site.totals);
        }
    }
    // The peak of a process is unknown if some of its sites are filtered out.
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

/// Selects stacks by the filters on frames. Each location is checked once.
struct StackFilter<'a> {
    input: ReportInput<'a>,
    filters: &'a [&'a Filter],
    /// The filters that match at a location, one bit each.
    cached: HashMap<LocationId, u64>,
}

impl<'a> StackFilter<'a> {
    fn new(profile: &'a Profile, symbols: &'a Symbols, filters: &'a [&'a Filter]) -> Self {
        Self {
            input: ReportInput::new(profile, symbols),
            filters,
            cached: HashMap::new(),
        }
    }

    fn pass(&mut self, stack: StackId) -> bool {
        self.filters.chunks(64).all(|filters| {
            let all = u64::MAX >> (64 - filters.len());
            let mut found = 0;
            for location in self.input.all_locations(stack) {
                found |= self.at(*location, filters);
                if found == all {
                    return true;
                }
            }
            false
        })
    }

    fn at(&mut self, location: LocationId, filters: &[&Filter]) -> u64 {
        // Results for more than 64 filters don't fit into the bits, so they are not cached.
        let is_cached = self.filters.len() <= 64;
        if is_cached && let Some(cached) = self.cached.get(&location) {
            return *cached;
        }
        let mut found = 0;
        for frame in self.input.frames(location) {
            for (bit, filter) in filters.iter().enumerate() {
                found |= u64::from(filter.matches_frame(&frame)) << bit;
            }
        }
        if is_cached {
            self.cached.insert(location, found);
        }
        found
    }
}
