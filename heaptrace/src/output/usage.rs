//! How sites use their blocks: sums over sites, quantiles, and buckets that are joined until they fit on a screen.
//!
//! Stage: output. Must not know formats.

use std::collections::BTreeMap;

use crate::join::histogram::range_of;
use crate::join::{Bucket, Errors, Kind, Rounding, RoundingClass, Site, Tally, Usage};
use crate::profile::Profile;

/// The most buckets of a histogram for people.
const MOST_ROWS: usize = 16;

/// Blocks in a range, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) blocks: Tally,
}

impl Row {
    fn of(bucket: &Bucket) -> Self {
        let (from, to) = range_of(bucket.index);
        Self {
            from,
            to,
            blocks: bucket.blocks,
        }
    }
}

/// Each bucket as a row.
pub(super) fn rows(buckets: &[Bucket]) -> Vec<Row> {
    buckets.iter().map(Row::of).collect()
}

/// Few rows: buckets are joined to halves of doublings, to doublings and to powers of them, if there are too many.
pub(super) fn few_rows(buckets: &[Bucket]) -> Vec<Row> {
    let mut rows = rows(buckets);
    let mut width = 1;
    while rows.len() > MOST_ROWS && width < 64 {
        width *= 2;
        rows.clear();
        for part in buckets.chunk_by(|a, b| a.index / width == b.index / width) {
            let mut ends = part.iter().map(Row::of);
            if let Some(first) = ends.next() {
                rows.push(Row {
                    to: ends.next_back().map_or(first.to, |last| last.to),
                    blocks: sum(part),
                    ..first
                });
            }
        }
    }
    rows
}

/// All blocks of a histogram.
pub(super) fn sum(buckets: &[Bucket]) -> Tally {
    let mut all = Tally::default();
    buckets.iter().for_each(|it| add(&mut all, &it.blocks));
    all
}

/// The range in which a part of the blocks ends, smallest first; `None` if there are none.
pub(super) fn quantile(buckets: &[Bucket], part: f64) -> Option<(u64, u64)> {
    let all = buckets.iter().map(|it| it.blocks.count as f64).sum::<f64>();
    let mut below = 0.0;
    let found = buckets.iter().find(|it| {
        below += it.blocks.count as f64;
        it.blocks.count > 0 && below >= part * all
    });
    found.map(|it| range_of(it.index))
}

/// How all sites of a profile together use their blocks, but what is rounded, if any has that recorded.
pub(super) fn of_all(profile: &Profile) -> Option<Usage> {
    let usages = profile.sites.iter().filter_map(|it| profile.usage(it));
    let mut usages = usages.peekable();
    usages.peek()?;
    let (mut sizes, mut lifetimes) = (BTreeMap::new(), BTreeMap::new());
    let mut all = Usage::default();
    for usage in usages {
        add_buckets(&mut sizes, &usage.sizes);
        add_buckets(&mut lifetimes, &usage.lifetimes);
        add(&mut all.untimed, &usage.untimed);
        add(&mut all.freed_elsewhere, &usage.freed_elsewhere);
        add(&mut all.reallocations, &usage.reallocations);
        add(&mut all.chains, &usage.chains);
        add(&mut all.moves, &usage.moves);
    }
    let plain = |buckets: BTreeMap<u8, Tally>| {
        let buckets = buckets.into_iter();
        buckets
            .map(|(index, blocks)| Bucket { index, blocks })
            .collect()
    };
    all.sizes = plain(sizes);
    all.lifetimes = plain(lifetimes);
    Some(all)
}

/// Whether the histograms of sites lack allocations or frees that their counters have: they can be a little older.
pub(super) fn is_behind<'a>(sites: impl IntoIterator<Item = &'a Site>, usage: &Usage) -> bool {
    let (mut allocations, mut frees) = (0_u64, 0_u64);
    for site in sites {
        allocations = allocations.saturating_add(site.totals.allocations);
        if site.kind == Kind::Heap {
            frees = frees.saturating_add(site.totals.frees);
        }
    }
    let freed = sum(&usage.lifetimes).count;
    let freed = freed.saturating_add(usage.untimed.count);
    // Rounded numbers of a sample differ by half of each bucket, for each site.
    let lacks =
        |counted: u64, buckets: usize, all: u64| counted.saturating_add(buckets as u64 + 1) < all;
    lacks(sum(&usage.sizes).count, usage.sizes.len(), allocations)
        || lacks(freed, usage.lifetimes.len(), frees)
}

/// What an allocator rounds up.
#[derive(Clone, Debug)]
pub(super) struct Rounded {
    /// The numbers.
    pub(super) rounding: Rounding,
    /// What was requested where this allocator is.
    pub(super) requested: u64,
    /// Whether all of that is of this allocator: where a process has several, it is not known.
    pub(super) is_certain: bool,
}

/// What allocators round up of the blocks of sites.
pub(super) fn rounded<'a>(usages: impl IntoIterator<Item = &'a Usage>) -> Vec<Rounded> {
    let mut families = BTreeMap::<_, Rounded>::new();
    let mut classes = BTreeMap::<_, RoundingClass>::new();
    for usage in usages {
        for it in &usage.rounding {
            let all = families.entry(it.family).or_insert(Rounded {
                rounding: Rounding {
                    family: it.family,
                    bytes: 0,
                    error: 0,
                    unfreed: 0,
                    classes: Vec::new(),
                },
                requested: 0,
                is_certain: true,
            });
            let sum = &mut all.rounding;
            sum.bytes = sum.bytes.saturating_add(it.bytes);
            sum.unfreed = sum.unfreed.saturating_add(it.unfreed);
            sum.error = Errors::both(sum.error, it.error);
            for class in &it.classes {
                let key = (it.family, class.from, class.to);
                let known = classes.entry(key).or_insert(RoundingClass {
                    from: class.from,
                    to: class.to,
                    ..RoundingClass::default()
                });
                add_class(known, class);
            }
            let requested = self::sum(&usage.sizes).bytes;
            all.requested = all.requested.saturating_add(requested);
            all.is_certain &= usage.rounding.len() == 1;
        }
    }
    for ((family, ..), class) in classes {
        if let Some(all) = families.get_mut(&family) {
            all.rounding.classes.push(class);
        }
    }
    families.into_values().collect()
}

/// Adds a size class of a site to that of other sites.
fn add_class(sum: &mut RoundingClass, class: &RoundingClass) {
    sum.blocks = sum.blocks.saturating_add(class.blocks);
    sum.requested = sum.requested.saturating_add(class.requested);
    sum.bytes = sum.bytes.saturating_add(class.bytes);
    sum.error = Errors::both(sum.error, class.error);
    sum.unfreed = sum.unfreed.saturating_add(class.unfreed);
}

fn add_buckets(sums: &mut BTreeMap<u8, Tally>, buckets: &[Bucket]) {
    for bucket in buckets {
        add(sums.entry(bucket.index).or_default(), &bucket.blocks);
    }
}

fn add(sum: &mut Tally, other: &Tally) {
    sum.count = sum.count.saturating_add(other.count);
    sum.bytes = sum.bytes.saturating_add(other.bytes);
    sum.count_error = Errors::both(sum.count_error, other.count_error);
    sum.bytes_error = Errors::both(sum.bytes_error, other.bytes_error);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(index: u8, count: u64) -> Bucket {
        Bucket {
            index,
            blocks: Tally {
                count,
                bytes: 2 * count,
                ..Tally::default()
            },
        }
    }

    /// Check that many buckets become few rows with the same sums, in ranges that don't overlap.
    #[test]
    fn many_buckets_become_few_rows() {
        let buckets: Vec<_> = (0..252).map(|it| bucket(it, u64::from(it))).collect();
        let few = few_rows(&buckets);
        assert!((2..=MOST_ROWS).contains(&few.len()), "{}", few.len());
        assert!(few.is_sorted_by(|a, b| a.to < b.from));
        let counted: u64 = few.iter().map(|it| it.blocks.count).sum();
        assert_eq!(counted, sum(&buckets).count);
        assert_eq!(few_rows(&buckets[..3]), rows(&buckets[..3]));
    }

    /// Check that quantiles are the bucket in which the part ends, and that empty histograms have none.
    #[test]
    fn quantiles_are_buckets() {
        let buckets = [bucket(1, 50), bucket(2, 49), bucket(9, 1)];
        assert_eq!(quantile(&buckets, 0.5), Some((1, 1)));
        assert_eq!(quantile(&buckets, 0.51), Some((2, 2)));
        assert_eq!(quantile(&buckets, 0.99), Some((2, 2)));
        assert_eq!(quantile(&buckets, 1.0), Some(range_of(9)));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
