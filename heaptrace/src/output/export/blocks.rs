//! Single blocks that have the sums of a site, for formats that hold every block.
//!
//! Stage: output. A profile has sums: how many blocks, how many bytes, how much of them at the peak and at the end. This finds blocks
//! with these sums, of sizes as equal as possible. Must not know the format.

use crate::join::Totals;

/// A number of blocks, and the sum of their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Blocks {
    pub(super) count: u64,
    pub(super) bytes: u64,
}

impl Blocks {
    /// Sizes with their numbers of blocks: the sum as equal parts.
    pub(super) fn sizes(self) -> [(u64, u64); 2] {
        let Some(small) = self.bytes.checked_div(self.count) else {
            return [(0, 0); 2];
        };
        let large = self.bytes % self.count;
        [(small + 1, large), (small, self.count - large)]
    }

    fn without(self, other: Self) -> Self {
        Self {
            count: self.count.saturating_sub(other.count),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    /// At most `most` of the blocks, which have so many bytes together; none if these blocks can't.
    fn part(self, bytes: u64, most: u64) -> Self {
        if bytes == 0 || self.count == 0 || bytes > self.bytes {
            return Self::default();
        }
        // One block can't be a part of itself.
        let is_all = bytes == self.bytes;
        let most = most.min(if is_all { self.count } else { self.count - 1 });
        let share = bytes as f64 / self.bytes as f64;
        let count = (self.count as f64 * share).round() as u64;
        match most {
            0 => Self::default(),
            most => Self {
                count: count.clamp(1, most),
                bytes,
            },
        }
    }

    /// So many of the blocks, with their share of the bytes.
    fn first(self, count: u64) -> Self {
        let count = count.min(self.count);
        let bytes = u128::from(self.bytes) * u128::from(count);
        let bytes = bytes.checked_div(self.count.into()).unwrap_or(0);
        Self {
            count,
            bytes: bytes as u64,
        }
    }
}

/// The blocks of a site, by their fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fates {
    /// Freed at once.
    pub(super) temporary: Blocks,
    /// Freed later, and not there at the peak.
    pub(super) freed: Blocks,
    /// There at the peak, and freed after it.
    pub(super) peak: Blocks,
    /// There at the peak and at the end.
    pub(super) both: Blocks,
    /// Allocated after the peak, and there at the end.
    pub(super) end: Blocks,
}

impl Fates {
    /// The blocks with these sums. What was not freed when its process ended is there at the end.
    pub(super) fn of(totals: &Totals) -> Self {
        let all = Blocks {
            count: totals.allocations,
            bytes: totals.allocated_bytes,
        };
        let live = totals
            .live_allocations
            .saturating_add(totals.left_allocations);
        let live_bytes = totals.live_bytes.saturating_add(totals.left_bytes);
        let at_end = Blocks {
            count: live.min(all.count),
            bytes: live_bytes.min(all.bytes),
        };
        let at_peak = totals.peak_live_bytes.min(all.bytes);
        let gone = all.without(at_end);
        let both = at_end.part(at_peak.min(at_end.bytes), at_end.count);
        // At the peak, at most one block is there that is freed at once.
        let lasting = gone.count.saturating_sub(totals.temporary_allocations);
        let peak = gone.part(at_peak - both.bytes, lasting.max(1));
        let gone = gone.without(peak);
        let temporary = gone.first(totals.temporary_allocations);
        Self {
            temporary,
            freed: gone.without(temporary),
            peak,
            both,
            end: at_end.without(both),
        }
    }

    /// The number of all blocks.
    pub(super) fn count(&self) -> u64 {
        let Self {
            temporary,
            freed,
            peak,
            both,
            end,
        } = self;
        let parts = [temporary, freed, peak, both, end];
        parts.iter().fold(0, |sum, it| sum.saturating_add(it.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(all: (u64, u64), live: (u64, u64), peak: u64, temporary: u64) -> Totals {
        Totals {
            allocations: all.0,
            allocated_bytes: all.1,
            live_allocations: live.0,
            live_bytes: live.1,
            peak_live_bytes: peak,
            temporary_allocations: temporary,
            ..Totals::default()
        }
    }

    /// Check that blocks have the sums of their site, whichever of peak and end has more.
    #[test]
    fn blocks_have_the_sums() {
        for (all, live, peak, temporary) in [
            ((10, 1000), (0, 0), 0, 10),
            ((10, 1000), (3, 250), 600, 2),
            ((10, 1000), (3, 250), 100, 7),
            ((10, 1000), (3, 250), 250, 0),
            ((10, 1000), (10, 1000), 1000, 0),
            ((10, 1000), (10, 1000), 77, 0),
            ((3, 0), (1, 0), 0, 1),
            ((1_000_003, 77_000_001), (5, 1), 33_333_333, 900_000),
        ] {
            let totals = totals(all, live, peak, temporary);
            let fates = Fates::of(&totals);
            let Fates {
                both,
                end,
                peak: only_peak,
                ..
            } = fates;
            assert_eq!(fates.count(), all.0, "{totals:?} {fates:?}");
            assert_eq!(
                (both.count + end.count, both.bytes + end.bytes),
                live,
                "{fates:?}"
            );
            assert_eq!(both.bytes + only_peak.bytes, peak, "{fates:?}");
            assert_eq!(fates.temporary.count, temporary, "{fates:?}");
        }
    }

    /// Check that equal parts add up.
    #[test]
    fn sizes_add_up() {
        for (count, bytes) in [(0, 0), (3, 10), (7, 7), (5, 0), (2, u64::MAX)] {
            let sizes = Blocks { count, bytes }.sizes();
            assert_eq!(sizes[0].1 + sizes[1].1, count);
            let sum: u64 = sizes.iter().map(|(size, count)| size * count).sum();
            assert_eq!(sum, bytes, "{count}");
        }
    }

    /// Check that sums that no blocks can have, as a crafted file may hold them, lose no block.
    #[test]
    fn impossible_sums_keep_their_blocks() {
        for (all, live, peak, temporary) in [
            ((1, 100), (1, 100), 40, 1),
            ((1, 100), (0, 0), 40, 1),
            ((0, 100), (7, 700), u64::MAX, 9),
            ((u64::MAX, 3), (u64::MAX, u64::MAX), 2, u64::MAX),
        ] {
            let totals = totals(all, live, peak, temporary);
            assert_eq!(Fates::of(&totals).count(), all.0, "{totals:?}");
        }
    }
}
