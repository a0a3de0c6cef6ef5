//! Selects the part of a profile that passes the filters.
//!
//! Stage: output. The result is a profile whose totals add up again, so formats need no code for filters.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;

use super::block_sites;
use super::filter::{Condition, Filter, Scope, SiteNumbers, Tree};
use super::own_peaks::has_own_peaks;
use super::report_input::ReportInput;
use super::sum::Sum;
use crate::join::{BlockSums, Kind, LocationId, OwnPeak, ProcessId, Site, StackId, Totals};
use crate::profile::{BlockCondition, BlockList, History, Profile, Symbols};

/// Returns the sites that pass all filters, and the matching processes. A filter on sites (stack, thread, kind or size)
/// also drops the processes that have no such site. Totals are the sums over these sites. Their peak is the
/// part of the run's peak; with a filter on processes, it is the part of each process's own peak, because the
/// selected processes may have had little at the peak of all.
pub fn select(profile: Profile, symbols: &Symbols, filters: &[Filter]) -> Profile {
    let mut none = History::default();
    select_with_history(profile, &mut none, symbols, filters, None)
}

/// The same, and the history of the sites.
///
/// With sums of blocks, conditions on age, time and size choose single blocks, and the counters are those of the chosen ones. They have no peak,
/// and what was freed only if the sums have that.
pub fn select_with_history(
    mut profile: Profile,
    history: &mut History,
    symbols: &Symbols,
    filters: &[Filter],
    blocks: Option<&BlockList>,
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
    let of_blocks = blocks.map(|blocks| block_sites::find(&mut profile, blocks));
    let peaks_are_own = blocks.is_none() && !of_processes.is_empty() && has_own_peaks(&profile);
    let is_of_sites = !of_sites.is_empty();
    let processes = profile.processes.iter();
    let mut kept: Vec<bool> = processes
        .map(|process| {
            let mut matches = |condition: &Condition| condition.matches_process(process);
            of_processes.iter().all(|it| it.holds(&mut matches))
        })
        .collect();
    let conditions = blocks.map_or(&[][..], |it| &it.conditions);
    let mut site_filter = SiteFilter::new(&profile, symbols, &of_sites, conditions);
    let mut pass = |site: &Site, met| {
        kept.get(site.process.0 as usize) == Some(&true) && site_filter.pass(site, met)
    };
    let sites: Vec<_> = match &of_blocks {
        None => {
            let sites = profile.sites.iter();
            sites.filter(|site| pass(site, 0)).copied().collect()
        }
        Some(blocks) => {
            let mut chosen: HashMap<usize, BlockSums> = HashMap::new();
            for blocks in blocks {
                let site = profile.sites.get(blocks.site);
                if site.is_some_and(|site| pass(site, blocks.met)) {
                    chosen.entry(blocks.site).or_default().merge(&blocks.sums);
                }
            }
            let sites = profile.sites.iter().enumerate();
            let of_chosen = |(index, site): (usize, &Site)| match (site.kind, chosen.get(&index)) {
                (Kind::Heap, sums) => Some(with_totals(site, sums?.totals())),
                (Kind::Mapped, _) => pass(site, 0).then(|| with_totals(site, site.totals)),
            };
            sites.filter_map(of_chosen).collect()
        }
    };
    if blocks.is_some() {
        // What these say is of all blocks of a site.
        profile.usages.clear();
        profile.generations.clear();
    }
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
    let mut totals = Sum::default();
    let mut of_process = vec![Sum::default(); profile.processes.len()];
    for site in &mut profile.sites {
        if peaks_are_own {
            site.totals = site.at_own_peak();
        }
        totals.add(&site.totals);
        if let Some(sum) = of_process.get_mut(site.process.0 as usize) {
            sum.add(&site.totals);
        }
    }
    // The peak of a process is unknown if some of its sites are filtered out.
    if is_of_sites {
        for (process, totals) in profile.processes.iter_mut().zip(of_process) {
            process.totals = totals.totals();
        }
    }
    profile.totals = totals.totals();
    profile
}

/// A site with other counters, and without a peak.
fn with_totals(site: &Site, mut totals: Totals) -> Site {
    totals.peak_live_bytes = 0;
    totals.errors.peak_live_bytes = 0;
    totals.errors.unseen.peak_live_bytes = 0;
    Site {
        totals,
        own_peak: OwnPeak::default(),
        ..*site
    }
}

/// Selects sites. What is asked of a process or a location is asked once.
struct SiteFilter<'a> {
    input: ReportInput<'a>,
    /// All of them must hold. A leaf is the index of a condition.
    trees: Vec<Tree<usize>>,
    conditions: Vec<&'a Condition>,
    /// The bit of each condition on single blocks.
    bits: Vec<Option<u32>>,
    /// The answers of processes, by the index of the condition.
    of_processes: HashMap<(ProcessId, usize), bool>,
    of_frames: FrameFilter<'a>,
}

impl<'a> SiteFilter<'a> {
    /// `of_blocks` are the conditions on single blocks, in the order of their bits.
    fn new(
        profile: &'a Profile,
        symbols: &'a Symbols,
        filters: &[&'a Tree<Condition>],
        of_blocks: &[BlockCondition],
    ) -> Self {
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
        let bit = |condition: &&Condition| {
            let wanted = condition.of_block()?;
            let mut bits = (0..).zip(of_blocks);
            bits.find(|(_, it)| **it == wanted).map(|(bit, _)| bit)
        };
        Self {
            bits: conditions.iter().map(bit).collect(),
            input: ReportInput::new(profile, symbols),
            trees,
            of_processes: HashMap::new(),
            of_frames: FrameFilter::new(&conditions),
            conditions,
        }
    }

    /// Whether blocks of a site pass that meet these conditions on single blocks.
    fn pass(&mut self, site: &Site, met: u64) -> bool {
        let Self {
            input,
            trees,
            conditions,
            bits,
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
            if let Some(Some(bit)) = bits.get(*index) {
                return met >> bit & 1 == 1;
            }
            match condition.scope() {
                // Nothing is known of single blocks.
                Scope::Block => false,
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
