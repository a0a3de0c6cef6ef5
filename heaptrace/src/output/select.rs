//! Selects the part of a profile that passes the filters.
//!
//! Stage: output. The result is a profile whose totals add up again, so formats need no code for filters.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;

use super::filter::{Condition, Filter, Scope, SiteNumbers, Tree};
use super::own_peaks::has_own_peaks;
use super::report_input::ReportInput;
use super::sum::add;
use crate::join::{LocationId, ProcessId, Site, StackId, Totals};
use crate::profile::{History, Profile, Symbols};

/// Returns the sites that pass all filters, and the matching processes. A filter on sites (stack, thread, kind or size)
/// also drops the processes that have no such site. Totals are the sums over these sites. Their peak is the
/// part of the run's peak; with a filter on processes, it is the part of each process's own peak, because the
/// selected processes may have had little at the peak of all.
pub fn select(profile: Profile, symbols: &Symbols, filters: &[Filter]) -> Profile {
    let mut none = History::default();
    select_with_history(profile, &mut none, symbols, filters)
}

/// The same, and the history of the sites.
pub fn select_with_history(
    mut profile: Profile,
    history: &mut History,
    symbols: &Symbols,
    filters: &[Filter],
) -> Profile {
    if filters.is_empty() {
        return profile;
    }
    let (mut of_processes, mut of_sites) = (Vec::new(), Vec::new());
    for filter in filters {
        let (processes, sites) = filter.parts();
        of_processes.extend(processes);
        of_sites.extend(sites);
    }
    let peaks_are_own = !of_processes.is_empty() && has_own_peaks(&profile);
    let is_of_sites = !of_sites.is_empty();
    let processes = profile.processes.iter();
    let mut kept: Vec<bool> = processes
        .map(|process| {
            let mut matches = |condition: &Condition| condition.matches_process(process);
            of_processes.iter().all(|it| it.holds(&mut matches))
        })
        .collect();
    let mut site_filter = SiteFilter::new(&profile, symbols, &of_sites);
    let sites: Vec<_> = profile
        .sites
        .iter()
        .filter(|site| kept.get(site.process.0 as usize) == Some(&true))
        .filter(|site| site_filter.pass(site))
        .copied()
        .collect();
    super::generations::retain(&mut profile.generations, &sites);
    if is_of_sites {
        let with_sites: HashSet<_> = sites.iter().map(|site| site.process.0 as usize).collect();
        for (index, kept) in kept.iter_mut().enumerate() {
            *kept &= with_sites.contains(&index);
        }
    }
    profile.sites = sites;
    // Remaining processes get new indexes, which sites refer to.
    history.renumber(&profile.keep_processes(&kept));
    let mut totals = Totals::default();
    let mut of_process = vec![Totals::default(); profile.processes.len()];
    for site in &mut profile.sites {
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
        for (process, totals) in profile.processes.iter_mut().zip(of_process) {
            process.totals = totals;
        }
    }
    profile.totals = totals;
    profile
}

/// Selects sites. What is asked of a process or a location is asked once.
struct SiteFilter<'a> {
    input: ReportInput<'a>,
    /// All of them must hold. A leaf is the index of a condition.
    trees: Vec<Tree<usize>>,
    conditions: Vec<&'a Condition>,
    /// The answers of processes, by the index of the condition.
    of_processes: HashMap<(ProcessId, usize), bool>,
    of_frames: FrameFilter<'a>,
}

impl<'a> SiteFilter<'a> {
    fn new(profile: &'a Profile, symbols: &'a Symbols, filters: &[&'a Tree<Condition>]) -> Self {
        let mut conditions = Vec::new();
        let mut numbered = |filter: &&'a Tree<Condition>| {
            filter.try_map(&mut |condition| {
                conditions.push(condition);
                Ok::<_, Infallible>(Tree::Leaf(conditions.len() - 1))
            })
        };
        let trees = filters
            .iter()
            .map(|filter| match numbered(filter) {
                Ok(tree) => tree,
                Err(never) => match never {},
            })
            .collect();
        Self {
            input: ReportInput::new(profile, symbols),
            trees,
            of_processes: HashMap::new(),
            of_frames: FrameFilter::new(&conditions),
            conditions,
        }
    }

    fn pass(&mut self, site: &Site) -> bool {
        let Self {
            input,
            trees,
            conditions,
            of_processes,
            of_frames,
        } = self;
        let numbers = SiteNumbers {
            kind: site.kind,
            thread: input.thread(site),
            block_type: input.type_name(site),
            element: input.element_name(site),
            totals: &site.totals,
        };
        let mut found = None;
        let mut holds = |index: &usize| {
            let Some(condition) = conditions.get(*index) else {
                return false;
            };
            match condition.scope() {
                Scope::Frame => {
                    let found = found.get_or_insert_with(|| of_frames.in_stack(input, site.stack));
                    has(found, *index)
                }
                Scope::Process => {
                    let answer = of_processes.entry((site.process, *index));
                    *answer.or_insert_with(|| {
                        let process = input.process(site);
                        process.is_some_and(|it| condition.matches_process(it))
                    })
                }
                Scope::Site => condition.matches_site(&numbers),
            }
        };
        trees.iter().all(|tree| tree.holds(&mut holds))
    }
}

/// A bit for each condition.
type Bits = Box<[u64]>;

fn has(bits: &Bits, index: usize) -> bool {
    let word = bits.get(index / 64).copied().unwrap_or(0);
    word >> (index % 64) & 1 == 1
}

/// Finds the conditions on frames that a stack meets. Each location is checked once.
struct FrameFilter<'a> {
    /// The conditions on frames, with their indexes.
    conditions: Vec<(usize, &'a Condition)>,
    words: usize,
    cached: HashMap<LocationId, Bits>,
}

impl<'a> FrameFilter<'a> {
    fn new(conditions: &[&'a Condition]) -> Self {
        let all = conditions.iter().copied().enumerate();
        Self {
            conditions: all.filter(|(_, it)| it.scope() == Scope::Frame).collect(),
            words: conditions.len().div_ceil(64),
            cached: HashMap::new(),
        }
    }

    /// The conditions that a frame of a stack meets.
    fn in_stack(&mut self, input: &ReportInput<'_>, stack: StackId) -> Bits {
        let Self {
            conditions,
            words,
            cached,
        } = self;
        let mut found = vec![0; *words].into_boxed_slice();
        for location in input.all_locations(stack) {
            let bits = cached.entry(*location).or_insert_with(|| {
                let mut bits = vec![0; *words].into_boxed_slice();
                for frame in input.frames(*location) {
                    for (index, condition) in conditions.iter() {
                        if let Some(word) = bits.get_mut(index / 64)
                            && condition.matches_frame(&frame)
                        {
                            *word |= 1 << (index % 64);
                        }
                    }
                }
                bits
            });
            for (word, more) in found.iter_mut().zip(bits.iter()) {
                *word |= more;
            }
        }
        found
    }
}
