//! Finds the types of the blocks of all stacks of a profile.
//!
//! Stage: types. A reader is asked once about each call; the functions of a stack are put together from its calls. Must not know how a type is
//! decided.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::chain::{Chain, Link, Sizes};
use super::decide::decide;
use super::parsed::is_plain_allocator;
use super::protocol::{Site, TypesAnswer, TypesQuestion, is_sound};
use crate::join::{Kind, LocationId, StackId};
use crate::profile::{BlockType, Mode, Profile, Symbols, Types};
use crate::reader::{Budget, Job};
use crate::symbolize::{DebugSources, ModuleFiles, Symbolizer};

/// Most calls of a stack that are looked at.
const MAX_CALLS: usize = 12;

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
    let mut types = Types::default();
    let mut ids: HashMap<BlockType, u32> = HashMap::new();
    for (stack, sizes) in sizes {
        let chain = chain(profile, symbols, known, *stack);
        let Some(found) = chain.and_then(|chain| decide(&chain, sizes)) else {
            continue;
        };
        let next = types.types.len() as u32;
        let id = *ids.entry(found.clone()).or_insert_with(|| {
            types.types.push(found);
            next
        });
        types.of_stacks.insert(*stack, id);
    }
    types
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
        .filter_map(|stack| profile.stacks.get(stack.0 as usize))
        .flat_map(|stack| stack.locations.iter().take(MAX_CALLS).copied())
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

/// The functions of a stack; `None` if an interpreter allocates.
fn chain(
    profile: &Profile,
    symbols: &Symbols,
    known: &HashMap<LocationId, Site>,
    stack: StackId,
) -> Option<Chain> {
    let stack = profile.stacks.get(stack.0 as usize)?;
    let mut chain = Chain::default();
    for (call, id) in stack.locations.iter().take(MAX_CALLS).enumerate() {
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
