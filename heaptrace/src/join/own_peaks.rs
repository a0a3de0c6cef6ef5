//! The bytes of each site at the peak of its own process.
//!
//! Stage: join. The run's peak says nothing of a process that had its own peak at another time. A growing process
//! reaches a new peak with every allocation. So a new peak copies only the sites that changed since the process's
//! last peak, usually one.

use super::estimate::Amount;

/// The bytes of a site at its process's peak.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    at_peak: Amount,
    /// Whether the site changed since that peak; then it is in its process's list.
    is_changed: bool,
}

/// The bytes of all sites, each at its own process's peak.
#[derive(Debug, Default)]
pub(super) struct OwnPeaks {
    levels: Vec<Level>,
    /// Sites whose bytes at the peak changed since this list was last handed out.
    changed_at_peak: Vec<u32>,
}

/// The sites of a process that changed since its peak, each once.
#[derive(Debug, Default)]
pub(super) struct ChangedSites(Vec<u32>);

impl OwnPeaks {
    /// The bytes of a site at its process's peak.
    pub(super) fn at_peak(&self, site: u32) -> Amount {
        let level = self.levels.get(site as usize);
        level.map_or_else(Amount::default, |level| level.at_peak)
    }

    /// Sites whose bytes at the peak changed since the last call; some more than once.
    pub(super) fn take_changed(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.changed_at_peak)
    }

    /// Records that the bytes of a site changed.
    pub(super) fn changed(&mut self, site: u32, of_process: &mut ChangedSites) {
        let index = site as usize;
        if index >= self.levels.len() {
            self.levels.resize(index + 1, Level::default());
        }
        let level = self.levels.get_mut(index);
        if level.is_some_and(|level| !std::mem::replace(&mut level.is_changed, true)) {
            of_process.0.push(site);
        }
    }

    /// Records that a process is at its peak. `now` gives the bytes of a site.
    pub(super) fn at_new_peak(
        &mut self,
        of_process: &mut ChangedSites,
        now: impl Fn(u32) -> Amount,
    ) {
        for site in of_process.0.drain(..) {
            let bytes = now(site);
            let Some(level) = self.levels.get_mut(site as usize) else {
                continue;
            };
            level.is_changed = false;
            if level.at_peak != bytes {
                level.at_peak = bytes;
                self.changed_at_peak.push(site);
            }
        }
    }

    /// Takes a site out of the peak: the peak is another process's now, or the slot is free.
    pub(super) fn clear(&mut self, site: u32) {
        self.set(site, Amount::default());
    }

    /// Gives the bytes of a site to another one.
    pub(super) fn move_to(&mut self, from: u32, to: u32) {
        let bytes = self.at_peak(from);
        self.clear(from);
        self.set(to, bytes);
    }

    fn set(&mut self, site: u32, at_peak: Amount) {
        if let Some(level) = self.levels.get_mut(site as usize) {
            *level = Level {
                at_peak,
                is_changed: false,
            };
            self.changed_at_peak.push(site);
        }
    }
}
