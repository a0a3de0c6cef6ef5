//! Finds the types of the blocks of all stacks of a profile.
//!
//! Stage: types. A reader is asked once about each call; the functions of a stack are put together from its calls. Must not know how a type is
//! decided.

use std::collections::{BTreeSet, HashMap};
use std::thread;

use super::chain::{Chain, Link, Sizes};
use super::decide::decide;
use super::parsed::is_plain_allocator;
use super::protocol::{Site, Target, TypesAnswer, TypesQuestion, is_sound};
use crate::join::{Kind, LocationId, StackId};
use crate::profile::{BlockType, Mode, Profile, Symbols, Types};
use crate::reader::{Budget, Job};
use crate::symbolize::{DebugSources, ModuleFiles, Symbolizer};

/// Most calls of a stack that are looked at.
const MAX_CALLS: usize = 12;

/// Stacks for which a further thread is worth its start.
const PER_THREAD: usize = 4096;

/// Most threads.
const MAX_THREADS: usize = 4;

/// How many threads are of use for so many stacks.
fn worthwhile(stacks: usize) -> usize {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    (stacks / PER_THREAD).clamp(1, processors.min(MAX_THREADS))
}

/// What is known of the calls of a profile.
#[derive(Default)]
struct Known {
    /// In the order of the locations. `None` if nothing is known, or if it was not asked for.
    sites: Vec<Option<Box<Site>>>,
    /// Whether more is known of a call than that it may be one of an allocator, in the same order.
    tells: Vec<bool>,
}

impl Known {
    fn of(&self, location: LocationId) -> Option<&Site> {
        self.sites.get(location.0 as usize)?.as_deref()
    }

    fn tells(&self, location: LocationId) -> bool {
        self.tells.get(location.0 as usize) == Some(&true)
    }

    fn add(&mut self, location: LocationId, site: Site) {
        let at = location.0 as usize;
        if let (Some(known), Some(tells)) = (self.sites.get_mut(at), self.tells.get_mut(at))
            && site != Site::default()
        {
            *tells = !tells_nothing(&site);
            *known = Some(Box::new(site));
        }
    }
}

/// Finds the types of the blocks of all stacks. `symbols` has the files of the functions.
pub fn find_types(
    profile: &Profile,
    symbols: &Symbols,
    files: &dyn ModuleFiles,
    sources: DebugSources,
    budget: &Budget,
) -> Types {
    let sizes = sizes(profile);
    let mut symbolizer = Symbolizer::new(budget, sources);
    let known = ask(&mut symbolizer, profile, files, &sizes);
    decided(profile, symbols, &known, &sizes)
}

/// Finds the types of the blocks of these stacks, whose functions this symbolizer has looked up, and adds them to its names.
pub fn add_types(
    symbolizer: &mut Symbolizer,
    profile: &Profile,
    files: &dyn ModuleFiles,
    stacks: &BTreeSet<StackId>,
) {
    let mut sizes = sizes(profile);
    sizes.retain(|(stack, _)| stacks.contains(stack));
    let known = ask(symbolizer, profile, files, &sizes);
    let found = decided(profile, symbolizer.symbols(), &known, &sizes);
    symbolizer.add_types(&found);
}

/// The types of stacks, by what is known of their calls.
fn decided(
    profile: &Profile,
    symbols: &Symbols,
    known: &Known,
    sizes: &[(StackId, Sizes)],
) -> Types {
    let mut stacks: Vec<Stack<'_>> = sizes
        .iter()
        .filter_map(|(stack, sizes)| Some((calls(profile, *stack)?, *stack, sizes)))
        // Most stacks of a stripped program are passed over.
        .filter(|(calls, ..)| calls.iter().any(|it| known.tells(*it)))
        .collect();
    // Stacks of the same calls have the same functions.
    stacks.sort_unstable_by_key(|(calls, stack, _)| (*calls, *stack));
    let parts = worthwhile(stacks.len());
    let each = stacks.len().div_ceil(parts).max(1);
    let work = |part| decided_in_turn(profile, symbols, known, part);
    let found: Vec<Vec<(StackId, BlockType)>> = thread::scope(|scope| {
        let mut parts = stacks.chunks(each);
        let first = parts.next();
        let begun: Vec<_> = parts
            .map(|part| {
                let thread = thread::Builder::new().spawn_scoped(scope, move || work(part));
                (part, thread)
            })
            .collect();
        let first = first.map(work);
        // Without a thread, this one does its work.
        let others = begun.into_iter().map(|(part, thread)| {
            let found = thread.ok().and_then(|thread| thread.join().ok());
            found.unwrap_or_else(|| work(part))
        });
        first.into_iter().chain(others).collect()
    });
    let mut types = Types::default();
    let mut ids: HashMap<BlockType, u32> = HashMap::new();
    for (stack, found) in found.into_iter().flatten() {
        let next = types.types.len() as u32;
        let id = *ids.entry(found).or_insert_with_key(|found| {
            types.types.push(found.clone());
            next
        });
        types.of_stacks.insert(stack, id);
    }
    types
}

/// The innermost calls of a stack, the stack, and the sizes of its blocks.
type Stack<'a> = (&'a [LocationId], StackId, &'a Sizes);

/// The calls of a stack that are looked at.
fn calls(profile: &Profile, stack: StackId) -> Option<&[LocationId]> {
    let locations = &profile.stacks.get(stack.0 as usize)?.locations;
    locations.get(..locations.len().min(MAX_CALLS))
}

/// The types of stacks, which are in the order of their calls.
fn decided_in_turn(
    profile: &Profile,
    symbols: &Symbols,
    known: &Known,
    stacks: &[Stack<'_>],
) -> Vec<(StackId, BlockType)> {
    let mut found = Vec::new();
    for same in stacks.chunk_by(|one, other| one.0 == other.0) {
        let calls = same.first().map_or(&[][..], |(calls, ..)| calls);
        let Some(chain) = chain(profile, symbols, known, calls) else {
            continue;
        };
        let types = same
            .iter()
            .filter_map(|(_, stack, sizes)| Some((*stack, decide(&chain, sizes)?)));
        found.extend(types);
    }
    found
}

/// Whether nothing is known of a call but that it may be one of an allocator.
fn tells_nothing(site: &Site) -> bool {
    let Site {
        functions,
        symbol,
        allocator_calls: _,
        target,
        noted,
        constructed,
        stored,
        is_returned,
    } = site;
    let is_of_allocator =
        |it: &Target| it.result.is_none() && (it.name.is_empty() || is_plain_allocator(&it.name));
    functions.is_empty()
        && symbol.is_empty()
        && target.as_ref().is_none_or(is_of_allocator)
        && noted.is_none()
        && constructed.is_none()
        && stored.is_none()
        && !is_returned
}

/// The sizes of the heap blocks of each stack that has some.
fn sizes(profile: &Profile) -> Vec<(StackId, Sizes)> {
    let is_exact = profile.info.mode == Mode::Exact;
    let mut sums: Vec<Option<(u64, u64)>> = vec![None; profile.stacks.len()];
    for site in profile.sites.iter().filter(|it| it.kind == Kind::Heap) {
        if let Some(sum) = sums.get_mut(site.stack.0 as usize) {
            let (blocks, bytes) = sum.unwrap_or((0, 0));
            *sum = Some((
                blocks.saturating_add(site.totals.allocations),
                bytes.saturating_add(site.totals.allocated_bytes),
            ));
        }
    }
    let all = (0..).map(StackId).zip(profile.block_sizes()).zip(sums);
    all.filter_map(|((stack, ends), sum)| {
        let sum = Some(sum?).filter(|_| is_exact);
        Some((stack, Sizes { ends, sum }))
    })
    .collect()
}

/// Asks about the calls of these stacks.
fn ask(
    symbolizer: &mut Symbolizer,
    profile: &Profile,
    files: &dyn ModuleFiles,
    stacks: &[(StackId, Sizes)],
) -> Known {
    let mut is_wanted = vec![false; profile.locations.len()];
    let calls = stacks
        .iter()
        .filter_map(|(stack, _)| calls(profile, *stack));
    for call in calls.flatten() {
        if let Some(is_wanted) = is_wanted.get_mut(call.0 as usize) {
            *is_wanted = true;
        }
    }
    let all = (0..).map(LocationId).zip(is_wanted);
    let wanted: Vec<LocationId> = all.filter_map(|(id, it)| it.then_some(id)).collect();
    let mut known = Known::default();
    known.sites.resize_with(profile.locations.len(), || None);
    known.tells.resize(profile.locations.len(), false);
    symbolizer.ask_about(
        profile,
        files,
        (Job::Types, &wanted),
        |offsets, has_debug, has_shared| TypesQuestion {
            offsets,
            has_debug,
            has_shared,
        },
        |locations, answer: TypesAnswer| {
            if is_sound(&answer) && answer.len() == locations.len() {
                for (location, site) in locations.iter().zip(answer) {
                    known.add(*location, site);
                }
            }
        },
    );
    known
}

/// The functions of these calls; `None` if an interpreter allocates.
fn chain(
    profile: &Profile,
    symbols: &Symbols,
    known: &Known,
    calls: &[LocationId],
) -> Option<Chain> {
    let mut chain = Chain::default();
    for (call, id) in calls.iter().enumerate() {
        let location = profile.locations.get(id.0 as usize)?;
        if location.function.is_some() {
            break;
        }
        let site = known.of(*id).cloned().unwrap_or_default();
        // What left the stack by a tail call to the allocator.
        let is_first = chain.sites.iter().all(|it| is_plain_allocator(&it.symbol));
        if is_first
            && let Some(target) = &site.target
            && !target.name.is_empty()
            && !is_plain_allocator(&target.name)
        {
            chain.links.push(Link {
                name: target.name.clone(),
                is_symbol: true,
                is_tail: true,
                call,
                ..Link::default()
            });
        }
        let frames = symbols.frames(*id);
        let has_same = frames.len() == site.functions.len();
        for (index, function) in site.functions.iter().enumerate() {
            let frame = frames.get(index).filter(|_| has_same);
            let file = frame.and_then(|it| it.file).map(|file| symbols.text(file));
            chain.links.push(Link {
                name: function.name.clone(),
                scope: function.scope.clone(),
                file: file.unwrap_or_default().to_owned(),
                parameters: function.parameters.clone(),
                is_rust: function.is_rust,
                is_symbol: false,
                is_tail: false,
                call,
            });
        }
        if site.functions.is_empty() {
            chain.links.push(Link {
                name: site.symbol.clone(),
                is_symbol: true,
                call,
                ..Link::default()
            });
        }
        chain.sites.push(site);
    }
    Some(chain)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that stacks whose calls tell nothing have no type, so that they may be passed over.
    #[test]
    fn calls_that_tell_nothing_have_no_type() {
        for target in ["", "malloc", "operator new(unsigned long)"] {
            let site = Site {
                target: Some(Target {
                    name: target.to_owned(),
                    result: None,
                }),
                allocator_calls: 1,
                ..Site::default()
            };
            assert!(tells_nothing(&site));
            let chain = Chain {
                links: vec![Link::default(); 3],
                sites: vec![site.clone(); 3],
            };
            assert_eq!(decide(&chain, &Sizes::default()), None);
            let named = Site {
                symbol: "make_order".to_owned(),
                ..site
            };
            assert!(!tells_nothing(&named));
        }
    }
}
