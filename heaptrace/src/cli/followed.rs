//! How the memory of each site changed during a live run, for the suspects that its table shows.
//!
//! Part of the command line. Must not know what is shown.

use crate::join::Update;
use crate::profile::History;

/// Most entries of a history, of a hundred bytes and more each.
const MOST: usize = 1 << 18;

/// The memory of each site over the run, while there is room for it.
#[derive(Clone)]
pub(super) struct Followed {
    history: Option<History>,
}

impl Followed {
    /// Adds an update. If there are too many entries, all are dropped.
    pub(super) fn record(&mut self, update: &Update) {
        if let Some(history) = &mut self.history {
            history.record(update);
            if history.entries() > MOST {
                self.history = None;
            }
        }
    }

    /// The history; `None` if there were too many entries.
    pub(super) fn history(&self) -> Option<&History> {
        self.history.as_ref()
    }
}

impl Default for Followed {
    fn default() -> Self {
        Self {
            history: Some(History::default()),
        }
    }
}
