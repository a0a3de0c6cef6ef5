//! The sites of a run, with their sums.
//!
//! Stage: join. A slot of the table is used again after its site was merged into another one. Knows nothing of
//! blocks and processes but their ids.

use super::block_sizes::BlockSizes;
use super::estimate::{Amount, Estimate, Sums};
use super::own_peaks::OwnPeaks;
use super::peak::Peak;
use super::update::{Kind, OwnPeak, ProcessId, Site, SiteId, StackId, ThreadNameId, Totals};

/// All sites, by their ids.
#[derive(Debug, Default)]
pub(super) struct Sites {
    entries: Vec<Entry>,
    changed: Vec<SiteId>,
    /// Slots without a site.
    vacant: Vec<SiteId>,
}

/// What tells the sites of a run apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct SiteOrigin {
    pub(super) process: ProcessId,
    pub(super) stack: StackId,
    pub(super) thread: Option<ThreadNameId>,
    pub(super) kind: Kind,
}

impl SiteOrigin {
    /// The site with sums and a peak of the run.
    fn with(self, slot: SiteId, sums: &Sums, peak: &Amount) -> Site {
        let Self {
            process,
            stack,
            thread,
            kind,
        } = self;
        let mut totals = sums.totals(peak);
        if kind == Kind::Mapped {
            totals.errors.mean_bytes = 1;
        }
        Site {
            thread,
            kind,
            totals,
            ..Site::of_heap(process, stack, slot)
        }
    }
}

impl Site {
    /// A site of the heap, of no thread, that has nothing yet.
    pub fn of_heap(process: ProcessId, stack: StackId, slot: SiteId) -> Self {
        Self {
            process,
            stack,
            thread: None,
            kind: Kind::Heap,
            totals: Totals::default(),
            own_peak: OwnPeak::default(),
            block_sizes: None,
            slot,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    origin: SiteOrigin,
    sums: Sums,
    block_sizes: Option<BlockSizes>,
    /// Whether its id is in the list of changed sites.
    is_changed: bool,
}

impl Sites {
    /// Adds a site without allocations.
    pub(super) fn add(&mut self, origin: SiteOrigin) -> SiteId {
        let next = SiteId(self.entries.len() as u32);
        let id = self.vacant.pop().unwrap_or(next);
        match self.entries.get_mut(id.0 as usize) {
            Some(entry) => {
                entry.origin = origin;
                entry.sums = Sums::default();
                entry.block_sizes = None;
            }
            None => self.entries.push(Entry {
                origin,
                sums: Sums::default(),
                block_sizes: None,
                is_changed: false,
            }),
        }
        id
    }

    /// Changes the sums of a site.
    pub(super) fn change(&mut self, id: SiteId, change: impl FnOnce(&mut Sums)) {
        if let Some(entry) = self.entries.get_mut(id.0 as usize) {
            change(&mut entry.sums);
            if !entry.is_changed {
                entry.is_changed = true;
                self.changed.push(id);
            }
        }
    }

    /// Notes the sizes of blocks of a site.
    pub(super) fn note_sizes(&mut self, id: SiteId, sizes: BlockSizes) {
        if let Some(entry) = self.entries.get_mut(id.0 as usize) {
            let known = entry.block_sizes.map_or(sizes, |it| it.and(sizes));
            entry.block_sizes = Some(known);
        }
    }

    /// The memory of a site that is certainly live.
    pub(super) fn live(&self, id: SiteId) -> Estimate {
        let entry = self.entries.get(id.0 as usize);
        entry.map_or_else(Estimate::default, |entry| entry.sums.live())
    }

    /// The process of a site.
    pub(super) fn process(&self, id: SiteId) -> Option<ProcessId> {
        Some(self.entries.get(id.0 as usize)?.origin.process)
    }

    /// The stack of a site.
    pub(super) fn stack(&self, id: SiteId) -> Option<StackId> {
        Some(self.entries.get(id.0 as usize)?.origin.stack)
    }

    /// A site with other sums than its own, without a peak.
    pub(super) fn with_sums(&self, id: SiteId, sums: &Sums) -> Option<Site> {
        let entry = self.entries.get(id.0 as usize)?;
        Some(Site {
            block_sizes: entry.block_sizes,
            ..entry.origin.with(id, sums, &Amount::default())
        })
    }

    /// Gives a site another stack.
    pub(super) fn set_stack(&mut self, id: SiteId, stack: StackId) {
        if let Some(entry) = self.entries.get_mut(id.0 as usize) {
            entry.origin.stack = stack;
        }
        self.change(id, |_| {});
    }

    /// Gives a site to another process.
    pub(super) fn move_to(&mut self, id: SiteId, process: ProcessId) {
        if let Some(entry) = self.entries.get_mut(id.0 as usize) {
            entry.origin.process = process;
        }
        self.change(id, |_| {});
    }

    /// Adds the sums of a site to another one, and makes its slot vacant.
    pub(super) fn merge(&mut self, from: SiteId, into: SiteId) {
        let mut sums = Sums::default();
        self.change(from, |own| sums = std::mem::take(own));
        self.change(into, |own| own.merge(&sums));
        let entry = self.entries.get_mut(from.0 as usize);
        if let Some(sizes) = entry.and_then(|it| it.block_sizes.take()) {
            self.note_sizes(into, sizes);
        }
        self.vacant.push(from);
    }

    /// The sites that changed since the last call, in the order of their ids.
    pub(super) fn take_changed(
        &mut self,
        peak: &mut Peak,
        own_peaks: &mut OwnPeaks,
    ) -> Vec<(SiteId, Site)> {
        let mut changed = std::mem::take(&mut self.changed);
        changed.extend(peak.take_changed().into_iter().map(SiteId));
        changed.extend(own_peaks.take_changed().into_iter().map(SiteId));
        changed.sort_unstable();
        changed.dedup();
        changed
            .into_iter()
            .filter_map(|id| {
                let entry = self.entries.get_mut(id.0 as usize)?;
                entry.is_changed = false;
                let site = Site {
                    own_peak: own_peaks.at_peak(id.0).as_peak(),
                    block_sizes: entry.block_sizes,
                    ..entry.origin.with(id, &entry.sums, &peak.at_peak(id.0))
                };
                Some((id, site))
            })
            .collect()
    }
}
