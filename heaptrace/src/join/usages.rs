//! How each site uses its blocks, and which of that is to be sent.
//!
//! Stage: join. A histogram is longer than the counters of a site. So it is not sent with every update, but when the events of the
//! site have doubled, and at the end of the run: a data file grows with the sites, not with the time.

use super::blocks::Block;
use super::size_classes::Family;
use super::update::SiteId;
use super::usage::Usage;
use super::usage_sums::{Freeing, UsageSums};

/// The usage of all sites, by their ids.
#[derive(Debug, Default)]
pub(super) struct Usages {
    /// Whether usage is counted at all.
    is_counted: bool,
    entries: Vec<Entry>,
    changed: Vec<SiteId>,
    /// Whether the next update has all changes.
    is_last: bool,
}

#[derive(Debug, Default)]
struct Entry {
    sums: UsageSums,
    /// Events of the site when it was last sent.
    sent: u64,
    /// Whether its id is in the list of changed sites.
    is_changed: bool,
    /// Whether it is sent in any case: the slot has another site now.
    is_urgent: bool,
}

impl Usages {
    /// Counts usage from now on.
    pub(super) fn count(&mut self) {
        self.is_counted = true;
    }

    /// Counts an allocation that was sampled at a mean, and the block that it replaced.
    pub(super) fn allocated(&mut self, site: SiteId, block: &Block, old: Option<&Block>) {
        self.change(site, |sums| {
            sums.allocated(block.size, block.mean);
            if let Some(old) = old {
                sums.reallocated(block.size, block.mean, block.address, old);
            }
        });
    }

    /// Counts a mapping.
    pub(super) fn mapped(&mut self, site: SiteId, length: u64) {
        self.change(site, |sums| sums.mapped(length));
    }

    /// Counts the free of a block, by whom if that is known.
    pub(super) fn freed(&mut self, block: &Block, by: Option<Freeing>) {
        self.change(block.site, |sums| sums.freed(block, by));
    }

    /// Adds the usage of a site to another one, and makes its slot vacant.
    pub(super) fn merge(&mut self, from: SiteId, into: SiteId) {
        let mut sums = UsageSums::default();
        self.change(from, |own| sums = std::mem::take(own));
        self.change(into, |own| own.merge(&sums));
        if let Some(entry) = self.entries.get_mut(from.0 as usize) {
            entry.is_urgent = true;
        }
    }

    /// Sends all changes with the next update: it is the last one.
    pub(super) fn send_all(&mut self) {
        self.is_last = true;
    }

    /// The usage that is due, in the order of sites. `has_family` tells which allocators the process of a site has.
    pub(super) fn take_due(
        &mut self,
        has_family: impl Fn(SiteId, Family) -> bool,
    ) -> Vec<(SiteId, Usage)> {
        let Self {
            entries,
            changed,
            is_last,
            ..
        } = self;
        let mut due = Vec::new();
        changed.retain(|id| {
            let Some(entry) = entries.get_mut(id.0 as usize) else {
                return false;
            };
            let events = entry.sums.events();
            if !*is_last && !entry.is_urgent && events < entry.sent.saturating_mul(2) {
                return true;
            }
            entry.is_changed = false;
            entry.is_urgent = false;
            entry.sent = events;
            due.push((*id, entry.sums.plain(|family| has_family(*id, family))));
            false
        });
        due.sort_unstable_by_key(|(id, _)| *id);
        due
    }

    fn change(&mut self, site: SiteId, change: impl FnOnce(&mut UsageSums)) {
        if !self.is_counted {
            return;
        }
        let index = site.0 as usize;
        if index >= self.entries.len() {
            self.entries.resize_with(index + 1, Entry::default);
        }
        let Some(entry) = self.entries.get_mut(index) else {
            return;
        };
        change(&mut entry.sums);
        if !entry.is_changed {
            entry.is_changed = true;
            self.changed.push(site);
        }
    }
}
