//! Looks up names for all addresses of a profile, and shows the progress.
//!
//! Part of the command line. Must not know how a name is found: the symbolize stage does.

use super::{message, progress};
use crate::join::LocationId;
use crate::profile::{Profile, Symbols};
use crate::reader::Budget;
use crate::symbolize::{self, DebugSources, ModuleFiles, Symbolizer};
use crate::types;

/// Looks up the names of all locations, with several readers if there are many.
pub(super) fn all(
    profile: &Profile,
    files: &(dyn ModuleFiles + Sync),
    sources: DebugSources,
) -> Symbols {
    let budget = Budget::default();
    let further = 1..symbolize::worthwhile(profile.locations.len());
    let mut helpers: Vec<Symbolizer> = further
        .map(|_| Symbolizer::helper(&budget, sources.clone()))
        .collect();
    let mut first = Symbolizer::new(&budget, sources.clone());
    let (mut symbols, gaps) = progress::counted("Writing names", profile.locations.len(), |done| {
        symbolize::look_up_all(&mut first, &mut helpers, profile, files, done)
    });
    let unread = budget.unread();
    for (file, reason) in &unread.files {
        message::warn(format!("no names from {file}: {reason}"));
    }
    for gap in gaps {
        message::warn(gap);
    }
    let of_types = Budget::default();
    symbols.types = types::find_types(profile, &symbols, files, sources, &of_types);
    for (file, reason) in &of_types.unread().files {
        if !unread.files.contains_key(file) {
            message::warn(format!("no types from {file}: {reason}"));
        }
    }
    symbols
}

/// Looks up the names of all locations that have none yet, without progress or warnings. One reader does it: what is traced goes on meanwhile.
pub(super) fn complete(
    known: Symbols,
    profile: &Profile,
    files: &dyn ModuleFiles,
    sources: DebugSources,
) -> Symbols {
    let budget = Budget::default();
    let mut symbolizer = Symbolizer::with_symbols(known, &budget, sources.clone());
    let all = (0..).map(LocationId).take(profile.locations.len());
    symbolizer.symbolize(profile, files, all);
    let mut symbols = symbolizer.into_symbols();
    symbols.types = types::find_types(profile, &symbols, files, sources, &budget);
    symbols
}
