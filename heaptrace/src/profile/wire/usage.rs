//! The message of how a site uses its blocks.
//!
//! Stage: profile. Histograms are lists of numbers, because a message for each bucket would be longer than the bucket.

use prost::Message;

use super::error::WireError;
use crate::join::histogram::BUCKETS;
use crate::join::{self, Bucket, Family, Rounding, RoundingClass, SiteId, Tally};

/// An entry of `usages` in [`Update`](crate::join::Update), as a message.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Usage {
    #[prost(uint32, tag = "1")]
    site: u32,
    /// For each bucket: its distance from the one before, its blocks, and their bytes.
    #[prost(uint64, repeated, tag = "2")]
    sizes: Vec<u64>,
    #[prost(uint64, repeated, tag = "3")]
    lifetimes: Vec<u64>,
    /// For each tally: its number and its bytes. Empty if all are zero; fewer in older files.
    #[prost(uint64, repeated, tag = "4")]
    tallies: Vec<u64>,
    /// For each family of allocators: its number, the bytes that rounding wastes, their error, and the unfreed part.
    #[prost(uint64, repeated, tag = "5")]
    rounding: Vec<u64>,
    /// The errors of both numbers of each bucket and tally; empty if all are zero.
    #[prost(uint64, repeated, tag = "6")]
    size_errors: Vec<u64>,
    #[prost(uint64, repeated, tag = "7")]
    lifetime_errors: Vec<u64>,
    #[prost(uint64, repeated, tag = "8")]
    tally_errors: Vec<u64>,
    /// For each entry of `rounding`: the number of its size classes, and for each of these the distance of its least usable bytes from those of the one
    /// before, that of the most from the least, its blocks, their requested bytes, the bytes beyond, their error, and the unfreed part.
    #[prost(uint64, repeated, tag = "9")]
    classes: Vec<u64>,
}

impl Usage {
    pub(super) fn new(site: SiteId, usage: &join::Usage) -> Self {
        let tallies = usage.tallies();
        let blocks = |buckets: &[Bucket]| errors(buckets.iter().map(|it| it.blocks));
        Self {
            site: site.0,
            sizes: numbers(&usage.sizes),
            lifetimes: numbers(&usage.lifetimes),
            tallies: unless_zero(tallies.iter().flat_map(|it| [it.count, it.bytes]).collect()),
            rounding: usage
                .rounding
                .iter()
                .flat_map(|it| [it.family as u64, it.bytes, it.error, it.unfreed])
                .collect(),
            size_errors: blocks(&usage.sizes),
            lifetime_errors: blocks(&usage.lifetimes),
            tally_errors: errors(tallies),
            classes: classes(&usage.rounding),
        }
    }

    pub(super) fn into_plain(self) -> Result<(SiteId, join::Usage), WireError> {
        let tally = |at: usize| {
            let pair = |list: &[u64]| {
                let number = |at: usize| list.get(at).copied().unwrap_or_default();
                (number(2 * at), number(2 * at + 1))
            };
            tally(pair(&self.tallies), pair(&self.tally_errors))
        };
        let usage = join::Usage {
            sizes: buckets(&self.sizes, &self.size_errors)?,
            lifetimes: buckets(&self.lifetimes, &self.lifetime_errors)?,
            untimed: tally(0),
            freed_elsewhere: tally(1),
            reallocations: tally(2),
            chains: tally(3),
            moves: tally(4),
            rounding: rounding(&self.rounding, &self.classes)?,
        };
        Ok((SiteId(self.site), usage))
    }
}

fn numbers(buckets: &[Bucket]) -> Vec<u64> {
    let mut before = 0;
    let numbers = buckets.iter().flat_map(|bucket| {
        let index = u64::from(bucket.index);
        let distance = index - std::mem::replace(&mut before, index);
        [distance, bucket.blocks.count, bucket.blocks.bytes]
    });
    numbers.collect()
}

fn errors(tallies: impl IntoIterator<Item = Tally>) -> Vec<u64> {
    let errors = tallies.into_iter();
    unless_zero(
        errors
            .flat_map(|it| [it.count_error, it.bytes_error])
            .collect(),
    )
}

fn unless_zero(numbers: Vec<u64>) -> Vec<u64> {
    if numbers.iter().all(|it| *it == 0) {
        return Vec::new();
    }
    numbers
}

/// The buckets, whose numbers must rise.
fn buckets(numbers: &[u64], errors: &[u64]) -> Result<Vec<Bucket>, WireError> {
    let (entries, rest) = numbers.as_chunks::<3>();
    if !rest.is_empty() || entries.len() > BUCKETS {
        return Err(WireError::TooMany { what: "buckets" });
    }
    let errors = errors.as_chunks::<2>().0.iter().copied();
    let errors = errors.chain(std::iter::repeat([0; 2]));
    let mut index = 0_u64;
    let mut buckets = Vec::with_capacity(entries.len());
    for ([distance, count, bytes], [count_error, bytes_error]) in entries.iter().zip(errors) {
        index = index.saturating_add(*distance);
        let is_next = *distance > 0 || buckets.is_empty();
        if !is_next || index >= BUCKETS as u64 {
            return Err(WireError::TooMany { what: "buckets" });
        }
        buckets.push(Bucket {
            index: index as u8,
            blocks: tally((*count, *bytes), (count_error, bytes_error)),
        });
    }
    Ok(buckets)
}

fn tally((count, bytes): (u64, u64), (count_error, bytes_error): (u64, u64)) -> Tally {
    Tally {
        count,
        bytes,
        count_error,
        bytes_error,
    }
}

fn classes(rounding: &[Rounding]) -> Vec<u64> {
    let mut numbers = Vec::new();
    for it in rounding {
        numbers.push(it.classes.len() as u64);
        let mut before = 0;
        for class in &it.classes {
            let distance = class
                .from
                .wrapping_sub(std::mem::replace(&mut before, class.from));
            numbers.extend([
                distance,
                class.to.wrapping_sub(class.from),
                class.blocks,
                class.requested,
                class.bytes,
                class.error,
                class.unfreed,
            ]);
        }
    }
    numbers
}

/// Takes the classes of one family off the numbers.
fn take_classes(numbers: &mut &[u64]) -> Result<Vec<RoundingClass>, WireError> {
    /// Most classes of a family. Writers have at most 381.
    const MOST: u64 = 1024;
    const TOO_MANY: WireError = WireError::TooMany {
        what: "classes of sizes",
    };
    // Files of earlier versions have none.
    let Some((count, rest)) = numbers.split_first() else {
        return Ok(Vec::new());
    };
    if *count > MOST {
        return Err(TOO_MANY);
    }
    let (entries, rest) = rest.split_at_checked(7 * *count as usize).ok_or(TOO_MANY)?;
    *numbers = rest;
    let mut from = 0_u64;
    let entries = entries.as_chunks::<7>().0.iter();
    let classes = entries.map(
        |[distance, width, blocks, requested, bytes, error, unfreed]| {
            from = from.wrapping_add(*distance);
            RoundingClass {
                from,
                to: from.wrapping_add(*width),
                blocks: *blocks,
                requested: *requested,
                bytes: *bytes,
                error: *error,
                unfreed: *unfreed,
            }
        },
    );
    Ok(classes.collect())
}

/// What rounding wastes. A family of a later version is passed over.
fn rounding(numbers: &[u64], mut classes: &[u64]) -> Result<Vec<Rounding>, WireError> {
    let (entries, rest) = numbers.as_chunks::<4>();
    if !rest.is_empty() || entries.len() > 16 {
        return Err(WireError::TooMany {
            what: "families of allocators",
        });
    }
    let mut known = Vec::new();
    for [family, bytes, error, unfreed] in entries {
        let classes = take_classes(&mut classes)?;
        let family = usize::try_from(*family).ok();
        if let Some(family) = family.and_then(|it| Family::ALL.get(it)) {
            known.push(Rounding {
                family: *family,
                bytes: *bytes,
                error: *error,
                unfreed: *unfreed,
                classes,
            });
        }
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what is written is read again, with and without errors, and that buckets which do not rise are refused.
    #[test]
    fn usage_is_read_as_written() {
        let blocks = |count, error| Tally {
            count,
            bytes: 10 * count,
            count_error: error,
            bytes_error: 2 * error,
        };
        let buckets = |error| {
            let indices = [0, 3, 251];
            let buckets = indices.map(|index| Bucket {
                index,
                blocks: blocks(u64::from(index) + 1, error),
            });
            buckets.to_vec()
        };
        let class = |from, error| RoundingClass {
            from,
            to: from + 3,
            blocks: 2,
            requested: from,
            bytes: 5,
            error,
            unfreed: 1,
        };
        for error in [0, 7] {
            let usage = join::Usage {
                sizes: buckets(error),
                lifetimes: buckets(error).split_off(1),
                untimed: blocks(1, error),
                freed_elsewhere: blocks(2, error),
                reallocations: blocks(3, error),
                chains: Tally::default(),
                moves: blocks(u64::MAX / 10, error),
                rounding: vec![Rounding {
                    family: Family::Mimalloc,
                    bytes: 5,
                    error,
                    unfreed: 4,
                    classes: vec![class(8, error), class(40, error), class(1032, 0)],
                }],
            };
            let bytes = Usage::new(SiteId(9), &usage).encode_to_vec();
            let read = Usage::decode(&*bytes).unwrap().into_plain().unwrap();
            assert_eq!(read, (SiteId(9), usage));
        }
        for classes in [vec![2, 1, 1, 1, 1, 1, 1, 1], vec![u64::MAX, 1]] {
            let usage = Usage {
                rounding: vec![0, 1, 1, 1],
                classes,
                ..Usage::default()
            };
            assert!(usage.into_plain().is_err());
        }
        let empty = join::Usage::default();
        assert_eq!(Usage::new(SiteId(1), &empty).encode_to_vec().len(), 2);
        for sizes in [
            vec![1],
            vec![5, 1, 1, 0, 1, 1],
            vec![252, 1, 1],
            vec![u64::MAX, 1, 1],
        ] {
            let usage = Usage {
                sizes,
                ..Usage::default()
            };
            assert!(usage.into_plain().is_err());
        }
    }
}
