//! Looks up names for all addresses of a profile, and shows the progress.
//!
//! Part of the command line. Must not know how a name is found: the symbolize stage does.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{message, progress};
use crate::join::{LocationId, ModuleId};
use crate::profile::{Profile, Symbols};
use crate::reader::Budget;
use crate::symbolize::{DebugSources, ModuleFiles, Symbolizer};

/// Addresses that are looked up at a time.
const BATCH: usize = 512;

/// Looks up the names of all locations.
pub(super) fn all(profile: &Profile, files: &dyn ModuleFiles, sources: DebugSources) -> Symbols {
    let budget = Budget::default();
    let mut symbolizer = Symbolizer::new(&budget, sources);
    progress::counted("Writing names", profile.locations.len(), |done| {
        look_up(&mut symbolizer, profile, files, done);
    });
    let unread = budget.unread();
    for (file, reason) in &unread.files {
        message::warn(format!("no names from {file}: {reason}"));
    }
    for gap in symbolizer.gaps() {
        message::warn(gap);
    }
    symbolizer.into_symbols()
}

/// Looks up the names of all locations that have none yet, without progress or warnings.
pub(super) fn complete(
    known: Symbols,
    profile: &Profile,
    files: &dyn ModuleFiles,
    sources: DebugSources,
) -> Symbols {
    let mut symbolizer = Symbolizer::with_symbols(known, &Budget::default(), sources);
    look_up(&mut symbolizer, profile, files, &AtomicUsize::new(0));
    symbolizer.into_symbols()
}

fn look_up(
    symbolizer: &mut Symbolizer,
    profile: &Profile,
    files: &dyn ModuleFiles,
    done: &AtomicUsize,
) {
    // File by file, so that no file is opened twice.
    let mut modules = BTreeMap::<Option<ModuleId>, Vec<LocationId>>::new();
    for (index, location) in (0_u32..).zip(&profile.locations) {
        if location.function.is_some() {
            // Its name comes from the interpreter.
            done.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        modules
            .entry(location.module)
            .or_default()
            .push(LocationId(index));
    }
    for batch in modules.values().flat_map(|ids| ids.chunks(BATCH)) {
        symbolizer.symbolize(profile, files, batch.iter().copied());
        done.fetch_add(batch.len(), Ordering::Relaxed);
    }
}
