//! Looks up the names of all locations with several symbolizers at the same time.
//!
//! Stage: symbolize. The work is cut into ranges of addresses of one module each. Each symbolizer takes the next range, and its reader reads only
//! the debug information of that range. The result does not depend on which symbolizer took which range: names are put together in the
//! order of the ranges, and a module that failed anywhere is looked up again as a whole by the first symbolizer, which has the most
//! memory. Must not know how a name is found.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::files::ModuleFiles;
use super::symbolizer::Symbolizer;
use super::table::NameTable;
use crate::join::{LocationId, Module, ModuleId};
use crate::profile::{Profile, Symbols};

/// Addresses that are looked up at a time.
const BATCH: usize = 512;

/// Addresses for which a further reader is worth its start, and its share of what each reader reads of a file anyway.
const PER_READER: usize = 1024;

/// Most symbolizers: each reader takes memory.
const MOST: usize = 4;

/// How many symbolizers are of use for so many addresses.
pub fn worthwhile(addresses: usize) -> usize {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    (addresses / PER_READER).clamp(1, processors.min(MOST))
}

/// Addresses of one module.
struct Range {
    module: Option<ModuleId>,
    locations: Vec<LocationId>,
}

impl Range {
    fn module<'p>(&self, profile: &'p Profile) -> Option<&'p Module> {
        profile.modules.get(self.module?.0 as usize)
    }

    fn look_up(
        &self,
        symbolizer: &mut Symbolizer,
        profile: &Profile,
        files: &dyn ModuleFiles,
        done: &AtomicUsize,
    ) {
        for batch in self.locations.chunks(BATCH) {
            symbolizer.symbolize(profile, files, batch.iter().copied());
            done.fetch_add(batch.len(), Ordering::Relaxed);
        }
    }
}

/// Looks up the names of all locations; returns them with what is not known, in sentences. `done` counts the locations. The helpers must have
/// been made as such.
pub fn look_up_all(
    first: &mut Symbolizer,
    helpers: &mut [Symbolizer],
    profile: &Profile,
    files: &(dyn ModuleFiles + Sync),
    done: &AtomicUsize,
) -> (Symbols, Vec<String>) {
    look_up_in_ranges(first, helpers, profile, files, PER_READER, done)
}

/// The same with ranges of at least so many addresses.
pub(super) fn look_up_in_ranges(
    first: &mut Symbolizer,
    helpers: &mut [Symbolizer],
    profile: &Profile,
    files: &(dyn ModuleFiles + Sync),
    least: usize,
    done: &AtomicUsize,
) -> (Symbols, Vec<String>) {
    let by_module = by_module(profile);
    let unnamed: usize = by_module.values().map(Vec::len).sum();
    // The others have names that came from an interpreter.
    done.fetch_add(profile.locations.len() - unnamed, Ordering::Relaxed);
    let mut ranges = Vec::new();
    for (module, locations) in by_module {
        let parts = (locations.len() / least).clamp(1, 1 + helpers.len());
        let parts = match module {
            Some(id) if parts > 1 && first.may_be_shared(profile, files, id) => parts,
            _ => 1,
        };
        let each = locations.len().div_ceil(parts).max(1);
        ranges.extend(locations.chunks(each).map(|locations| Range {
            module,
            locations: locations.to_vec(),
        }));
    }
    let next = AtomicUsize::new(0);
    // Who looked up each range; 0 is the first symbolizer.
    let takers: Vec<AtomicUsize> = ranges.iter().map(|_| AtomicUsize::new(0)).collect();
    let work = |number: usize, symbolizer: &mut Symbolizer| {
        let untaken = std::iter::from_fn(|| {
            let index = next.fetch_add(1, Ordering::Relaxed);
            ranges.get(index).zip(takers.get(index))
        });
        for (range, taker) in untaken {
            taker.store(number, Ordering::Relaxed);
            range.look_up(symbolizer, profile, files, done);
        }
    };
    thread::scope(|scope| {
        for (number, helper) in (1..).zip(helpers.iter_mut()) {
            let work = &work;
            // Without a thread, the others do its work.
            let _ = thread::Builder::new().spawn_scoped(scope, move || work(number, helper));
        }
        work(0, first);
    });
    let repeated = repeat_failed(first, helpers, &ranges, profile, files);
    let mut names = NameTable::default();
    for (range, taker) in ranges.iter().zip(takers) {
        let helper = taker.into_inner().checked_sub(1);
        let helper = helper.filter(|_| !repeated.contains(&range.module));
        let by = helper.and_then(|number| helpers.get(number));
        for location in &range.locations {
            names.copy(*location, by.unwrap_or(first).symbols());
        }
    }
    let all = std::iter::once(&*first).chain(&*helpers);
    let gaps: BTreeSet<String> = all.flat_map(Symbolizer::gaps).collect();
    (names.into_symbols(), gaps.into_iter().collect())
}

/// The locations that have no name of their own, in the order of their addresses: neighbours share debug information.
fn by_module(profile: &Profile) -> BTreeMap<Option<ModuleId>, Vec<LocationId>> {
    let mut modules = BTreeMap::<Option<ModuleId>, Vec<(u64, LocationId)>>::new();
    for (index, location) in (0_u32..).zip(&profile.locations) {
        if location.function.is_none() {
            let of_module = modules.entry(location.module).or_default();
            of_module.push((location.address, LocationId(index)));
        }
    }
    let sorted = modules.into_iter().map(|(module, mut locations)| {
        locations.sort_unstable();
        let locations = locations.into_iter().map(|(_, id)| id);
        (module, locations.collect())
    });
    sorted.collect()
}

/// Looks up modules again with the first symbolizer: those that a helper could not read, and those that only some ranges were read of. Returns
/// these modules.
fn repeat_failed(
    first: &mut Symbolizer,
    helpers: &[Symbolizer],
    ranges: &[Range],
    profile: &Profile,
    files: &dyn ModuleFiles,
) -> BTreeSet<Option<ModuleId>> {
    let mut repeated = BTreeSet::new();
    let mut forgotten = BTreeSet::new();
    for of_module in ranges.chunk_by(|one, other| one.module == other.module) {
        let Some(range) = of_module.first() else {
            continue;
        };
        let Some(module) = range.module(profile) else {
            continue;
        };
        let is_cut = of_module.len() > 1;
        let has_failed = helpers.iter().any(|it| it.has_failed(module));
        if has_failed || (is_cut && first.has_failed(module)) {
            repeated.insert(range.module);
            // A file that fails again fails for all modules of it.
            if forgotten.insert((&module.path, &module.build_id)) {
                first.forget_failures(module);
            }
            for range in of_module {
                first.forget_names(&range.locations);
            }
            // They are counted as done.
            let done = AtomicUsize::new(0);
            for range in of_module {
                range.look_up(first, profile, files, &done);
            }
        }
    }
    repeated
}
