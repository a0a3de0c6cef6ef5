//! What rounding wastes, by size.
//!
//! Stage: join. Sizes that all families round to the same class are one group: up to 1 KiB those between two multiples of 8, above that a quarter of a
//! doubling, which is a class of jemalloc and mimalloc, and several of others. So one list serves all families. Knows nothing of sites.

use super::histogram::{bucket_of, range_of};
use super::size_classes::{FAMILIES, Family};
use super::usage::{Rounding, RoundingClass};

/// The largest size in a group of 8.
const FINE: u64 = 1024;

/// The number of groups of 8, with that of 0 bytes.
const FINE_GROUPS: u16 = (FINE / 8) as u16 + 1;

/// The groups of sizes, in their order, without those that were not asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct RoundedSizes {
    groups: Vec<(u16, Group)>,
    /// The last size, and what it wastes: most sites allocate blocks of one size.
    last: Option<(u64, [u64; FAMILIES])>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Group {
    blocks: f64,
    requested: f64,
    waste: [Waste; FAMILIES],
}

/// What rounding wastes in one family of allocators.
#[derive(Clone, Copy, Debug, Default)]
struct Waste {
    bytes: f64,
    variance: f64,
    unfreed: f64,
}

impl RoundedSizes {
    /// Adds an allocation of a weight.
    pub(super) fn allocated(&mut self, size: u64, weight: f64) {
        let wasted = self.wasted(size);
        let group = self.group(group_of(size));
        group.blocks += weight;
        group.requested += weight * size as f64;
        for (waste, bytes) in group.waste.iter_mut().zip(wasted) {
            let bytes = bytes as f64;
            waste.bytes += weight * bytes;
            waste.unfreed += weight * bytes;
            waste.variance += bytes * bytes * weight * (weight - 1.0);
        }
    }

    /// Takes a freed block off what was not freed.
    pub(super) fn freed(&mut self, size: u64, weight: f64) {
        let wasted = self.wasted(size);
        let group = self.group(group_of(size));
        for (waste, bytes) in group.waste.iter_mut().zip(wasted) {
            waste.unfreed -= weight * bytes as f64;
        }
    }

    /// Adds the groups of another site.
    pub(super) fn merge(&mut self, other: &Self) {
        for (index, added) in &other.groups {
            self.group(*index).merge(added);
        }
    }

    /// What one family wastes.
    pub(super) fn of_family(&self, family: Family) -> Rounding {
        let mut all = Group::default();
        let mut classes: Vec<([u64; 2], Group)> = Vec::new();
        for (index, group) in &self.groups {
            all.merge(group);
            let class = class_of(family, *index);
            match classes.last_mut().filter(|it| it.0 == class) {
                Some((_, sum)) => sum.merge(group),
                None => classes.push((class, *group)),
            }
        }
        let of = |group: &Group| {
            group
                .waste
                .get(family as usize)
                .copied()
                .unwrap_or_default()
        };
        let classes = classes.iter().map(|([from, to], group)| RoundingClass {
            from: *from,
            to: *to,
            blocks: rounded(group.blocks),
            requested: rounded(group.requested),
            bytes: rounded(of(group).bytes),
            error: error(of(group).variance),
            unfreed: rounded(of(group).unfreed),
        });
        Rounding {
            family,
            bytes: rounded(of(&all).bytes),
            error: error(of(&all).variance),
            unfreed: rounded(of(&all).unfreed),
            classes: classes.filter(|it| it.bytes > 0).collect(),
        }
    }

    fn group(&mut self, index: u16) -> &mut Group {
        let at = self.groups.partition_point(|it| it.0 < index);
        if self.groups.get(at).is_none_or(|it| it.0 != index) {
            // Most sites have few groups, and there can be millions of sites.
            self.groups.reserve_exact(1);
            self.groups.insert(at, (index, Group::default()));
        }
        &mut self.groups[at].1
    }

    /// What rounding a size wastes, in each family.
    fn wasted(&mut self, size: u64) -> [u64; FAMILIES] {
        match self.last {
            Some((last, wasted)) if last == size => wasted,
            _ => {
                let wasted = Family::ALL.map(|family| family.waste(size));
                self.last = Some((size, wasted));
                wasted
            }
        }
    }
}

impl Group {
    fn merge(&mut self, other: &Self) {
        self.blocks += other.blocks;
        self.requested += other.requested;
        for (waste, added) in self.waste.iter_mut().zip(&other.waste) {
            waste.bytes += added.bytes;
            waste.variance += added.variance;
            waste.unfreed += added.unfreed;
        }
    }
}

fn group_of(size: u64) -> u16 {
    match size {
        0..=FINE => size.div_ceil(8) as u16,
        _ => FINE_GROUPS + u16::from(bucket_of(size - 1)),
    }
}

/// The least and the most usable bytes of blocks of a group.
fn class_of(family: Family, group: u16) -> [u64; 2] {
    let ends = match group.checked_sub(FINE_GROUPS) {
        None => [8 * u64::from(group); 2],
        Some(bucket) => {
            let (from, to) = range_of(bucket as u8);
            [from, to].map(|it| it.saturating_add(1))
        }
    };
    ends.map(|size| size.saturating_add(family.waste(size)))
}

/// A sum as an integer. Sums that came down to nothing may be some bits below zero.
pub(super) fn rounded(sum: f64) -> u64 {
    sum.max(0.0).round() as u64
}

/// A standard error, rounded up: an uncertain number never looks exact.
pub(super) fn error(variance: f64) -> u64 {
    variance.max(0.0).sqrt().ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each group lies in one class of each family, so that what a class wastes is exact, and that classes don't overlap but at
    /// their ends.
    #[test]
    fn groups_lie_in_one_class() {
        for family in Family::ALL {
            for size in 1..=FINE {
                let usable = size + family.waste(size);
                assert_eq!(
                    class_of(family, group_of(size)),
                    [usable; 2],
                    "{family:?} {size}"
                );
            }
            for size in (FINE + 1..200_000).step_by(7) {
                let usable = size + family.waste(size);
                let [from, to] = class_of(family, group_of(size));
                assert!((from..=to).contains(&usable), "{family:?} {size}");
                if matches!(family, Family::Jemalloc) {
                    assert_eq!(from, to);
                }
            }
        }
    }

    /// Check that classes add up to the whole, that frees are taken off, and that blocks which fit have no class.
    #[test]
    fn classes_add_up() {
        let mut sizes = RoundedSizes::default();
        for size in [1, 20, 24, 25, 25, 40, 3000, 1 << 20] {
            sizes.allocated(size, 1.0);
        }
        sizes.freed(25, 1.0);
        let found = sizes.of_family(Family::Glibc);
        let class = |it: &RoundingClass| {
            (
                it.from,
                it.to,
                it.blocks,
                it.requested,
                it.bytes,
                it.unfreed,
            )
        };
        let classes: Vec<_> = found.classes.iter().map(class).collect();
        assert_eq!(classes[0], (24, 24, 3, 45, 27, 27));
        assert_eq!(classes[1], (40, 40, 3, 90, 30, 15));
        let sum: u64 = classes.iter().map(|it| it.4).sum();
        assert_eq!((found.bytes, found.error), (sum, 0));
        assert_eq!(found.unfreed, sum - 15);
        let fits = RoundedSizes::default().of_family(Family::Jemalloc);
        assert!(fits.classes.is_empty());
    }
}
