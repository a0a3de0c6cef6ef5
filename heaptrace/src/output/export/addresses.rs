//! Code addresses for formats without names: every file at a place of its own in one address space.
//!
//! Stage: output. Shared by these formats. Processes map their files at different, overlapping places, and these formats know one
//! process. So the first file keeps its place, and a file that overlaps another one moves.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;

use crate::join::{ModuleId, Site, Totals};
use crate::output::error::OutputError;
use crate::output::module_ranges::{self, ModuleRange};
use crate::output::report_input::ReportInput;
use crate::text::escape;

/// Where moved files begin: above programs, and below the libraries of most processes.
const MOVED_TO: u64 = 0x1000_0000_0000;

/// The distance of moved files, and what their addresses are multiples of.
const ALIGNMENT: u64 = 1 << 21;

/// The memory of a site: what was not freed, and all that was allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) blocks: u64,
    pub(super) bytes: u64,
    pub(super) all_blocks: u64,
    pub(super) all_bytes: u64,
}

impl Memory {
    /// What is live counts, and what processes left when they ended.
    pub(super) fn of(totals: &Totals) -> Self {
        Self {
            blocks: totals
                .live_allocations
                .saturating_add(totals.left_allocations),
            bytes: totals.live_bytes.saturating_add(totals.left_bytes),
            all_blocks: totals.allocations,
            all_bytes: totals.allocated_bytes,
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            blocks: self.blocks.saturating_add(other.blocks),
            bytes: self.bytes.saturating_add(other.bytes),
            all_blocks: self.all_blocks.saturating_add(other.all_blocks),
            all_bytes: self.all_bytes.saturating_add(other.all_bytes),
        }
    }
}

/// The files of a profile with their places.
pub(super) struct Addresses<'a> {
    input: &'a ReportInput<'a>,
    places: HashMap<ModuleId, ModuleRange>,
    /// In the order in which readers expect them, the program first.
    order: Vec<ModuleId>,
}

impl<'a> Addresses<'a> {
    pub(super) fn of(input: &'a ReportInput<'a>) -> Self {
        let mut taken = Taken::default();
        let (mut places, mut order) = (HashMap::new(), Vec::new());
        for (id, range) in module_ranges::of(input) {
            places.insert(id, taken.take(range));
            order.push(id);
        }
        Self {
            input,
            places,
            order,
        }
    }

    /// The memory of all sites.
    pub(super) fn of_all_sites(&self) -> Memory {
        let sites = self.input.profile.sites.iter();
        sites.fold(Memory::default(), |sum, site| {
            sum.and(Memory::of(&site.totals))
        })
    }

    /// Writes the stack of a site, the innermost address first, and ends the line. What an interpreter runs has no address.
    pub(super) fn write_stack(&self, site: &Site, out: &mut dyn Write) -> Result<(), OutputError> {
        let mut written = 0;
        for id in self.input.locations(site.stack).iter() {
            let location = self.input.profile.locations.get(id.0 as usize);
            let Some(location) = location.filter(|it| it.function.is_none()) else {
                continue;
            };
            let place = location.module.and_then(|id| self.places.get(&id));
            let address = place.map_or(location.address, |it| it.address(location.address));
            // Readers take all addresses but the innermost one for return addresses, and go back by one byte.
            let address = address.saturating_add(u64::from(written > 0));
            write!(out, " {address:#x}")?;
            written += 1;
        }
        // A line without any address is no line for readers.
        writeln!(out, "{}", if written == 0 { " 0x0" } else { "" })?;
        Ok(())
    }

    /// Writes the files in the way of `/proc/PID/maps`.
    pub(super) fn write_files(&self, out: &mut dyn Write) -> Result<(), OutputError> {
        writeln!(out, "\nMAPPED_LIBRARIES:")?;
        for id in &self.order {
            let module = self.input.profile.modules.get(id.0 as usize);
            if let (Some(module), Some(place)) = (module, self.places.get(id)) {
                let ModuleRange { start, end, offset } = place;
                let path = escape(&module.path);
                writeln!(
                    out,
                    "{start:08x}-{end:08x} r-xp {offset:08x} 00:00 0 {path}"
                )?;
            }
        }
        Ok(())
    }
}

/// The taken parts of the address space: starts, with their ends.
#[derive(Default)]
struct Taken {
    ranges: BTreeMap<u64, u64>,
    next: u64,
}

impl Taken {
    /// Takes a range, or one of the same length elsewhere if another one overlaps it.
    fn take(&mut self, range: ModuleRange) -> ModuleRange {
        let mut taken = range;
        let length = range.end.saturating_sub(range.start);
        while let Some(behind) = self.overlapping(&taken) {
            // Behind the other one at once: it can be of any length in a crafted file.
            if taken != range {
                self.next = self.next.max(behind);
            }
            self.next = self.next.max(MOVED_TO).div_ceil(ALIGNMENT);
            self.next = self.next.saturating_mul(ALIGNMENT);
            let end = self.next.saturating_add(length);
            if end == u64::MAX {
                // Only a crafted file needs so much room.
                return range;
            }
            taken = ModuleRange {
                start: self.next,
                end,
                ..range
            };
        }
        if taken != range {
            self.next = taken.end;
        }
        self.ranges.insert(taken.start, taken.end);
        taken
    }

    /// The end of a taken range that overlaps this one.
    fn overlapping(&self, range: &ModuleRange) -> Option<u64> {
        let (_, end) = self.ranges.range(..range.end).next_back()?;
        (*end > range.start).then_some(*end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> ModuleRange {
        ModuleRange {
            start,
            end,
            offset: 0x1000,
        }
    }

    /// Check that a range keeps its place unless it overlaps another one, and that moved ranges overlap nothing.
    #[test]
    fn overlapping_ranges_move() {
        let mut taken = Taken::default();
        assert_eq!(
            taken.take(range(0x40_0000, 0x50_0000)),
            range(0x40_0000, 0x50_0000)
        );
        assert_eq!(
            taken.take(range(0x50_0000, 0x50_1000)),
            range(0x50_0000, 0x50_1000)
        );
        let moved = taken.take(range(0x40_0000, 0x41_0000));
        assert_eq!(moved, range(MOVED_TO, MOVED_TO + 0x1_0000));
        // A range that is where moved ones go.
        let there = range(MOVED_TO + ALIGNMENT, MOVED_TO + 2 * ALIGNMENT);
        assert_eq!(taken.take(there), there);
        let moved = taken.take(range(0x30_0000, 0x60_0000));
        assert!(
            moved.start >= there.end && moved.end - moved.start == 0x30_0000,
            "{moved:?}"
        );
        // A range of any length is passed over at once. (It took steps of the alignment.)
        let long = range(MOVED_TO + 16 * ALIGNMENT, u64::MAX / 2);
        assert_eq!(taken.take(long), long);
        let moved = taken.take(range(0x30_0000, 0x30_0000 + 32 * ALIGNMENT));
        assert!(moved.start >= long.end, "{moved:?}");
        // A crafted file ends, and fails not.
        assert_eq!(taken.take(range(0, u64::MAX)), range(0, u64::MAX));
    }
}
