//! Finds the types of the blocks of all stacks of a profile.
//!
//! Stage: types. A reader is asked once about each call; the functions of a stack are put together from its calls. Must not know how a type is
//! decided.

use std::collections::{BTreeMap, BTreeSet, HashMap};
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
    let known = ask(&mut symbolizer, profile, files, sizes.keys().copied());
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
    sizes.retain(|stack, _| stacks.contains(stack));
    let known = ask(symbolizer, profile, files, sizes.keys().copied());
    let found = decided(profile, symbolizer.symbols(), &known, &sizes);
    symbolizer.add_types(&found);
}

/// The types of stacks, by what is known of their calls.
fn decided(
    profile: &Profile,
    symbols: &Symbols,
    known: &HashMap<LocationId, Site>,
    sizes: &BTreeMap<StackId, Sizes>,
) -> Types {
    let mut stacks: Vec<Stack<'_>> = sizes
        .iter()
        .filter_map(|(stack, sizes)| Some((calls(profile, *stack)?, *stack, sizes)))
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
    known: &HashMap<LocationId, Site>,
    stacks: &[Stack<'_>],
) -> Vec<(StackId, BlockType)> {
    let is_unknown = |id: &LocationId| known.get(id).is_none_or(tells_nothing);
    let mut found = Vec::new();
    for same in stacks.chunk_by(|one, other| one.0 == other.0) {
        let calls = same.first().map_or(&[][..], |(calls, ..)| calls);
        // Most stacks of a stripped program.
        if calls.iter().all(is_unknown) {
            continue;
        }
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

/// The sizes of the heap blocks of each stack.
fn sizes(profile: &Profile) -> BTreeMap<StackId, Sizes> {
    let ends = profile.block_sizes();
    let is_exact = profile.info.mode == Mode::Exact;
    let mut all: BTreeMap<StackId, Sizes> = BTreeMap::new();
    for site in profile.sites.iter().filter(|it| it.kind == Kind::Heap) {
        let sizes = all.entry(site.stack).or_insert(Sizes {
            ends: ends.get(&site.stack).copied(),
            sum: is_exact.then_some((0, 0)),
        });
        if let Some((blocks, bytes)) = &mut sizes.sum {
            *blocks = blocks.saturating_add(site.totals.allocations);
            *bytes = bytes.saturating_add(site.totals.allocated_bytes);
        }
    }
    all
}

/// Asks about the calls of these stacks.
fn ask(
    symbolizer: &mut Symbolizer,
    profile: &Profile,
    files: &dyn ModuleFiles,
    stacks: impl Iterator<Item = StackId>,
) -> HashMap<LocationId, Site> {
    let mut wanted: Vec<LocationId> = stacks
        .filter_map(|stack| calls(profile, stack))
        .flatten()
        .copied()
        .collect();
    wanted.sort_unstable();
    wanted.dedup();
    let mut known = HashMap::new();
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
                known.extend(locations.iter().copied().zip(answer));
            }
        },
    );
    known
}

/// The functions of these calls; `None` if an interpreter allocates.
fn chain(
    profile: &Profile,
    symbols: &Symbols,
    known: &HashMap<LocationId, Site>,
    calls: &[LocationId],
) -> Option<Chain> {
    let mut chain = Chain::default();
    for (call, id) in calls.iter().enumerate() {
        let location = profile.locations.get(id.0 as usize)?;
        if location.function.is_some() {
            break;
        }
        let site = known.get(id).cloned().unwrap_or_default();
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
