//! Looks up names for all addresses of a profile, and shows the progress.
//!
//! Part of the command line. Must not know how a name is found: the symbolize stage does.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use super::message;
use crate::join::{LocationId, ModuleId};
use crate::profile::{Profile, Symbols};
use crate::reader::Budget;
use crate::symbolize::{ModuleFiles, Symbolizer};
use crate::text;

/// A shorter lookup shows no progress line.
const PATIENCE: Duration = Duration::from_millis(500);
/// Addresses between two updates of the progress line.
const BATCH: usize = 2048;

/// Looks up the names of all locations.
pub(super) fn all(profile: &Profile, files: &dyn ModuleFiles) -> Symbols {
    let budget = Budget::default();
    let mut symbolizer = Symbolizer::new(&budget);
    look_up(
        &mut symbolizer,
        profile,
        files,
        Progress::new(profile.locations.len()),
    );
    let unread = budget.unread();
    for (file, reason) in &unread.files {
        message::warn(format!("no names from {file}: {reason}"));
    }
    symbolizer.into_symbols()
}

/// Looks up the names of all locations that have none yet, without progress or warnings.
pub(super) fn complete(known: Symbols, profile: &Profile, files: &dyn ModuleFiles) -> Symbols {
    let mut symbolizer = Symbolizer::with_symbols(known, &Budget::default());
    look_up(&mut symbolizer, profile, files, Progress::silent());
    symbolizer.into_symbols()
}

fn look_up(
    symbolizer: &mut Symbolizer,
    profile: &Profile,
    files: &dyn ModuleFiles,
    mut progress: Progress,
) {
    // File by file, so that no file is opened twice.
    let mut modules = BTreeMap::<Option<ModuleId>, Vec<LocationId>>::new();
    for (index, location) in (0_u32..).zip(&profile.locations) {
        modules
            .entry(location.module)
            .or_default()
            .push(LocationId(index));
    }
    for batch in modules.values().flat_map(|ids| ids.chunks(BATCH)) {
        symbolizer.symbolize(profile, files, batch.iter().copied());
        progress.add(batch.len());
    }
}

/// A progress line on standard error, if that is a terminal.
struct Progress {
    begun: Instant,
    done: usize,
    total: usize,
    terminal: bool,
    shown: bool,
}

impl Progress {
    fn new(total: usize) -> Self {
        Self {
            begun: Instant::now(),
            done: 0,
            total,
            terminal: io::stderr().is_terminal(),
            shown: false,
        }
    }

    /// For a lookup in the background, while the terminal shows something else.
    fn silent() -> Self {
        Self {
            terminal: false,
            ..Self::new(0)
        }
    }

    fn add(&mut self, count: usize) {
        self.done += count;
        if self.terminal && self.begun.elapsed() > PATIENCE {
            self.shown = true;
            let _ = write!(
                io::stderr(),
                "\rlooking up names: {} of {} addresses\x1b[K",
                text::count(self.done as u64),
                text::count(self.total as u64)
            );
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
