//! Sites that changed, as differences from what the file had of them before.
//!
//! Stage: profile. A long run writes the same sites again with each update. A column for each number, with the differences of all sites,
//! is a third of their records, and compresses better. A number that mostly follows from others of its site is the difference from that. All
//! arithmetic wraps around, so any numbers are read as they were written. Knows nothing of chunks.

use std::collections::HashMap;

use prost::Message;

use super::error::WireError;
use crate::join::{self, SiteId};
use crate::profile::budget::{Budget, Cost as _};

/// Numbers of a site. A later version adds columns at the end.
const NUMBERS: usize = 36;

/// Most sites of a message, so that it fits into a chunk whatever the numbers are.
const ROWS: usize = 10_000;

/// Most sites that a writer remembers: some 23 MB. One more, and the table would double.
const REMEMBERED: usize = 7 << 13;

/// Sites that are in an earlier update, too.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Changes {
    /// The id of each site, minus that of the one before.
    #[prost(uint32, repeated, tag = "1")]
    ids: Vec<u32>,
    #[prost(message, repeated, tag = "2")]
    columns: Vec<Column>,
}

/// One number of all these sites.
#[derive(Clone, PartialEq, Message)]
struct Column {
    /// Which one: its place in [`numbers`].
    #[prost(uint32, tag = "1")]
    number: u32,
    /// Zeros at the end are left out.
    #[prost(sint64, repeated, tag = "2")]
    values: Vec<i64>,
}

/// What a file has of sites, as far as its writer remembers.
#[derive(Debug, Default)]
pub(in crate::profile) struct WrittenSites {
    sites: HashMap<SiteId, join::Site>,
}

impl WrittenSites {
    /// The sites of an update in two parts: those that are written as a whole, and changes.
    pub(super) fn split<'a>(
        &mut self,
        sites: &'a [(SiteId, join::Site)],
    ) -> (Vec<&'a (SiteId, join::Site)>, Vec<Changes>) {
        let (mut whole, mut rows) = (Vec::new(), Vec::new());
        for entry in sites {
            let (id, site) = entry;
            if self.sites.len() >= REMEMBERED && !self.sites.contains_key(id) {
                self.sites.clear();
            }
            match self.sites.insert(*id, *site) {
                Some(before) if is_same(&before, site) => {
                    rows.push((id.0, differences(&before, site)));
                }
                _ => whole.push(entry),
            }
        }
        // Distances between ids are positive.
        rows.sort_unstable_by_key(|(id, _)| *id);
        (whole, rows.chunks(ROWS).map(Changes::new).collect())
    }
}

impl Changes {
    fn new(rows: &[(u32, [i64; NUMBERS])]) -> Self {
        let mut before = 0;
        let ids = rows
            .iter()
            .map(|(id, _)| id - std::mem::replace(&mut before, *id));
        let columns = (0..NUMBERS).filter_map(|number| {
            let mut values: Vec<i64> = rows.iter().map(|(_, row)| row[number]).collect();
            let used = values.iter().rposition(|it| *it != 0)? + 1;
            values.truncate(used);
            Some(Column {
                number: number as u32,
                values,
            })
        });
        Self {
            ids: ids.collect(),
            columns: columns.collect(),
        }
    }

    /// Adds these sites, each changed from what is known of it, to a list.
    pub(super) fn apply(
        self,
        known: &[join::Site],
        list: &mut Vec<(SiteId, join::Site)>,
        budget: &mut Budget,
    ) -> Result<(), WireError> {
        let mut columns: [&[i64]; NUMBERS] = [&[]; NUMBERS];
        for column in &self.columns {
            if column.values.len() > self.ids.len() {
                return Err(WireError::TooMany {
                    what: "changes of sites",
                });
            }
            // A number of a later version is passed over.
            if let Some(slot) = columns.get_mut(column.number as usize) {
                *slot = &column.values;
            }
        }
        let mut id = 0_u32;
        for (row, distance) in self.ids.iter().enumerate() {
            id = id.checked_add(*distance).ok_or(WireError::Malformed)?;
            let before = known.get(id as usize).ok_or(WireError::Malformed)?;
            let differences = columns.map(|it| it.get(row).copied().unwrap_or_default());
            let site = changed(before, differences);
            budget.charge(site.cost())?;
            list.push((SiteId(id), site));
        }
        Ok(())
    }
}

/// Whether two records are of one site, and differ in nothing but its numbers. (A slot of the table can get another site.)
fn is_same(a: &join::Site, b: &join::Site) -> bool {
    let changed = join::Site {
        totals: b.totals,
        own_peak: b.own_peak,
        ..*a
    };
    changed == *b
}

fn differences(before: &join::Site, now: &join::Site) -> [i64; NUMBERS] {
    let (before, now) = (values(before), values(now));
    let mut differences = [0; NUMBERS];
    for (number, slot) in differences.iter_mut().enumerate() {
        let difference = now[number].wrapping_sub(before[number]);
        *slot = difference.wrapping_sub(expected(number, &before, &now)) as i64;
    }
    differences
}

fn changed(before: &join::Site, differences: [i64; NUMBERS]) -> join::Site {
    let mut site = *before;
    let before = values(before);
    let mut now = before;
    for (number, difference) in differences.into_iter().enumerate() {
        let difference = (difference as u64).wrapping_add(expected(number, &before, &now));
        now[number] = before[number].wrapping_add(difference);
    }
    for (slot, number) in numbers(&mut site).into_iter().zip(now) {
        *slot = number;
    }
    site
}

/// How much a number is expected to grow, from numbers of the site that come before it.
fn expected(number: usize, before: &[u64; NUMBERS], now: &[u64; NUMBERS]) -> u64 {
    let grew = |number: usize| now[number].wrapping_sub(before[number]);
    // Most sites allocate blocks of one size, and free what they allocate.
    let size = before[1].checked_div(before[0]).unwrap_or_default();
    match number {
        // Bytes of allocations.
        1 => grew(0).wrapping_mul(size),
        // Frees, and their bytes.
        2 => grew(0),
        3 => grew(1).wrapping_sub(grew(0).wrapping_sub(grew(2)).wrapping_mul(size)),
        // What is live.
        4 => grew(0).wrapping_sub(grew(2)),
        5 => grew(1).wrapping_sub(grew(3)),
        // Temporary blocks: as many of the allocations as before.
        11 => {
            let part = u128::from(grew(0)) * u128::from(before[11]);
            part.checked_div(u128::from(before[0]))
                .unwrap_or_default()
                .try_into()
                .unwrap_or_default()
        }
        _ => 0,
    }
}

fn values(site: &join::Site) -> [u64; NUMBERS] {
    let mut copy = *site;
    numbers(&mut copy).map(|it| *it)
}

/// The numbers of a site, in the order of their columns.
fn numbers(site: &mut join::Site) -> [&mut u64; NUMBERS] {
    let join::Site {
        totals, own_peak, ..
    } = site;
    let errors = &mut totals.errors;
    let unseen = &mut errors.unseen;
    [
        &mut totals.allocations,
        &mut totals.allocated_bytes,
        &mut totals.frees,
        &mut totals.freed_bytes,
        &mut totals.live_allocations,
        &mut totals.live_bytes,
        &mut totals.left_allocations,
        &mut totals.left_bytes,
        &mut totals.uncertain_allocations,
        &mut totals.uncertain_bytes,
        &mut totals.peak_live_bytes,
        &mut totals.temporary_allocations,
        &mut errors.allocations,
        &mut errors.allocated_bytes,
        &mut errors.frees,
        &mut errors.freed_bytes,
        &mut errors.live_allocations,
        &mut errors.live_bytes,
        &mut errors.left_allocations,
        &mut errors.left_bytes,
        &mut errors.peak_live_bytes,
        &mut errors.temporary_allocations,
        &mut errors.mean_bytes,
        &mut unseen.allocations,
        &mut unseen.allocated_bytes,
        &mut unseen.frees,
        &mut unseen.freed_bytes,
        &mut unseen.live_allocations,
        &mut unseen.live_bytes,
        &mut unseen.left_allocations,
        &mut unseen.left_bytes,
        &mut unseen.peak_live_bytes,
        &mut unseen.temporary_allocations,
        &mut own_peak.bytes,
        &mut own_peak.error,
        &mut own_peak.unseen,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::{ProcessId, StackId, Totals};
    use crate::random::Random;

    fn site(id: u32) -> join::Site {
        join::Site::of_heap(ProcessId(id), StackId(id), SiteId(id))
    }

    /// Sites of any numbers.
    fn sites(seed: u64, bits: u32) -> Vec<(SiteId, join::Site)> {
        let mut random = Random(seed);
        let mut sites = Vec::new();
        for id in 0..50 {
            let mut site = site(id);
            for number in numbers(&mut site) {
                *number = random.next() >> (64 - bits);
            }
            sites.push((SiteId(id), site));
        }
        sites
    }

    /// Check that changes of any numbers lead from the sites before to those after, and that a slot with another site is written as a whole.
    #[test]
    fn changes_lead_to_the_sites_after() {
        for bits in [1, 8, 40, 64] {
            let (before, mut now) = (sites(1, bits), sites(2, bits));
            now.retain(|(id, _)| id.0 % 3 != 1);
            now[7].1.stack.0 += 1;
            let mut written = WrittenSites::default();
            let (whole, changes) = written.split(&before);
            assert_eq!((whole.len(), changes.len()), (before.len(), 0));
            let (whole, changes) = written.split(&now);
            assert_eq!(whole, [&now[7]]);
            let known: Vec<_> = before.iter().map(|(_, site)| *site).collect();
            let mut read = Vec::new();
            for part in changes {
                let part = Changes::decode(&*part.encode_to_vec()).unwrap();
                part.apply(&known, &mut read, &mut Budget::new(None))
                    .unwrap();
            }
            now.remove(7);
            assert_eq!(read, now);
        }
    }

    /// Check that a site which does as before costs a few bytes.
    #[test]
    fn steady_sites_are_small() {
        let mut before = site(1);
        before.totals = Totals {
            allocations: 1_000,
            allocated_bytes: 64_000,
            frees: 990,
            freed_bytes: 63_360,
            live_allocations: 10,
            live_bytes: 640,
            temporary_allocations: 500,
            ..Totals::default()
        };
        let mut now = before;
        now.totals = Totals {
            allocations: 2_000,
            allocated_bytes: 128_000,
            frees: 1_990,
            freed_bytes: 127_360,
            temporary_allocations: 1_000,
            ..before.totals
        };
        let differences = differences(&before, &now);
        assert_eq!(differences[0], 1_000);
        assert!(differences[1..].iter().all(|it| *it == 0));
    }

    /// Check that changes of a site that is not known, and columns that are longer than the sites, are refused.
    #[test]
    fn impossible_changes_are_refused() {
        let column = |values: Vec<i64>| Column { number: 0, values };
        let known = [site(0)];
        for (ids, columns, is_good) in [
            (vec![0], vec![column(vec![5])], true),
            (vec![0, 0], vec![column(vec![5])], true),
            (vec![1], vec![], false),
            (vec![0, u32::MAX, 1], vec![], false),
            (vec![0], vec![column(vec![5, 6])], false),
        ] {
            let mut list = Vec::new();
            let changes = Changes { ids, columns };
            let result = changes.apply(&known, &mut list, &mut Budget::new(None));
            assert_eq!(result.is_ok(), is_good);
        }
    }
}
