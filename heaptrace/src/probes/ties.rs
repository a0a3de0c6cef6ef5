//! Events of a child's own, for kernels that swap the inherited events of relatives.
//!
//! Stage: probes. Opens events for a child that the session names. Must not know how children are found.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use super::perf_events::open_for_thread;

/// Opens events for a child beside those that it inherited.
///
/// These events don't end with another process, so the child stays probed whatever becomes of the inherited ones. They
/// are not inherited either. The kernel therefore no longer takes the child's events for the same as those of its own
/// children, and swaps nothing from then on.
#[derive(Clone, Default)]
pub struct Ties {
    events: Arc<Mutex<Vec<u64>>>,
}

impl Ties {
    /// Adds defined events, which later children get as well.
    pub(super) fn add(&self, events: &[u64]) {
        if let Ok(mut all) = self.events.lock() {
            all.extend(events);
        }
    }

    /// Opens the events for a process that was just forked. They have to stay open until it ends.
    pub fn tie(&self, pid: u32) -> io::Result<Vec<OwnedFd>> {
        let events = self.events.lock().map(|events| events.clone());
        let events = events.unwrap_or_default();
        events
            .iter()
            .map(|event| open_for_thread(*event, pid))
            .collect()
    }
}
