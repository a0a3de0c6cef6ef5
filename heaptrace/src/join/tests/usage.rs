//! Tests of how sites use their blocks.

use heaptrace_common::wire::{Alloc, Free};

use super::{LIMITS, PID, alloc, begin, end, free, stack};
use crate::events::record::Event;
use crate::join::histogram::{bucket_of, range_of};
use crate::join::{Bucket, EndedLimits, Family, Follow, Joiner, SiteId, Tally, Update, Usage};
use crate::random::numbers;

/// The numbers and bytes of buckets, by a number in each.
fn exact(buckets: &[Bucket]) -> Vec<(u64, u64, u64)> {
    let of = |it: &Bucket| (range_of(it.index).0, it.blocks.count, it.blocks.bytes);
    buckets.iter().map(of).collect()
}

fn exactly(count: u64, bytes: u64) -> Tally {
    Tally {
        count,
        bytes,
        ..Tally::default()
    }
}

fn joined(events: impl IntoIterator<Item = Event>) -> Joiner {
    let mut joiner = Joiner::new(Follow::Family, LIMITS);
    joiner.record_usage();
    events.into_iter().for_each(|event| joiner.event(event));
    joiner
}

fn freed_at(id: u64, time: u64, tid: u32) -> Event {
    let Event::Free(event) = free(1, id, 0) else {
        unreachable!()
    };
    Event::Free(Free { time, tid, ..event })
}

fn only_usage(update: Update) -> Usage {
    assert_eq!(update.usages.len(), 1);
    update.usages.into_iter().next().unwrap().1
}

/// Check that sizes and lifetimes are counted in their buckets, frees by other threads apart, and frees without an event as blocks of
/// unknown lifetime.
#[test]
fn sizes_and_lifetimes_are_counted() {
    const HOUR: u64 = 3_600_000_000_000;
    let mut joiner = joined([
        begin(1),
        stack(1, 10, &[5]),
        Event::Alloc(alloc(1, 10, 100, 64)),
        Event::Alloc(alloc(1, 10, 101, 64)),
        Event::Alloc(alloc(1, 10, 102, 65)),
        Event::Alloc(alloc(1, 10, 103, 200)),
        freed_at(100, 1 << 20, PID),
        freed_at(101, 30 * 24 * HOUR, PID - 1),
        freed_at(103, 1 << 20, PID),
    ]);
    joiner.swept(1, 102);
    let usage = only_usage(joiner.take_update(5));
    assert_eq!(exact(&usage.sizes), [(64, 3, 193), (192, 1, 200)]);
    let short = range_of(bucket_of((1 << 20) - 128)).0;
    let long = range_of(bucket_of(30 * 24 * HOUR)).0;
    assert_eq!(exact(&usage.lifetimes), [(short, 2, 264), (long, 1, 64)]);
    assert_eq!(usage.freed_elsewhere, exactly(1, 64));
    assert_eq!(usage.untimed, exactly(1, 65));
}

/// Check that reallocations are counted by their chains, that only those that moved copy bytes, and that what moved is not more than
/// the smaller block.
#[test]
fn reallocations_are_chains() {
    let realloc = |freed, id, address, size| {
        Event::Alloc(Alloc {
            freed,
            address,
            ..alloc(1, 10, id, size)
        })
    };
    let mut joiner = joined([
        begin(1),
        stack(1, 10, &[5]),
        realloc(0, 100, 0x1000, 64),
        realloc(100, 101, 0x1000, 128),
        realloc(101, 102, 0x2000, 256),
        realloc(102, 103, 0x3000, 16),
        realloc(0, 110, 0x4000, 1000),
        realloc(110, 111, 0x5000, 2000),
    ]);
    let usage = only_usage(joiner.take_update(5));
    assert_eq!(usage.reallocations, exactly(4, 128 + 256 + 16 + 2000));
    assert_eq!(usage.chains, exactly(2, 128 + 2000));
    assert_eq!(usage.moves, exactly(3, 128 + 16 + 1000));
    assert_eq!(usage.freed_elsewhere, Tally::default());
}

/// Check that samples count with their weights, and that the errors are those of sampling.
#[test]
fn samples_have_weights_and_errors() {
    let sampled = |id| {
        Event::Alloc(Alloc {
            mean: 1 << 20,
            ..alloc(1, 10, id, 1024)
        })
    };
    let mut joiner = joined([begin(1), stack(1, 10, &[5]), sampled(100), sampled(101)]);
    joiner.event(freed_at(100, 1 << 20, PID));
    let usage = only_usage(joiner.take_update(5));
    let blocks = usage.sizes[0].blocks;
    // One in 1,024.5 blocks is sampled.
    assert_eq!((blocks.count, blocks.bytes), (2049, 2_098_176));
    // The square root of twice 1,024.5 times 1,023.5.
    assert_eq!((blocks.count_error, blocks.bytes_error), (1449, 1_482_911));
    assert_eq!(usage.lifetimes[0].blocks.count, 1025);
    assert_eq!(usage.lifetimes[0].blocks.count_error, 1024);
}

/// Check that histograms are sent when they have doubled and at the end, and then as a whole; and that the slot of a site that
/// was merged is sent as empty.
#[test]
fn histograms_are_sent_seldom() {
    let mut joiner = joined([begin(1), stack(1, 10, &[5])]);
    let mut sent = Vec::new();
    for id in 1..=1000 {
        joiner.event(Event::Alloc(alloc(1, 10, id, 64)));
        for (_, usage) in joiner.take_update(id).usages {
            sent.push(usage.sizes[0].blocks.count);
        }
    }
    assert_eq!(sent, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
    joiner.send_all();
    let last = only_usage(joiner.take_update(1001));
    assert_eq!(exact(&last.sizes), [(64, 1000, 64_000)]);
    assert!(joiner.take_update(1002).usages.is_empty());
}

/// Check that merging ended processes adds up their usage, so that the sums of all sites stay the same.
#[test]
fn merged_processes_add_up() {
    let limits = EndedLimits {
        processes: 1,
        sites: 1000,
    };
    let mut joiner = Joiner::new(Follow::Family, limits);
    joiner.record_usage();
    let mut known = std::collections::HashMap::<SiteId, Usage>::new();
    let mut random = numbers(5);
    for process in 1..=20 {
        joiner.event(begin(process));
        joiner.event(stack(process, process, &[5 + random(3)]));
        for id in 0..5 {
            let event = alloc(process, process, process * 100 + id, 1 + random(1000));
            joiner.event(Event::Alloc(event));
        }
        joiner.event(free(process, process * 100, 0));
        joiner.event(end(process, 1));
        joiner.close(1);
        known.extend(joiner.take_update(process).usages);
    }
    joiner.send_all();
    known.extend(joiner.take_update(100).usages);
    let all = |buckets: fn(&Usage) -> &Vec<Bucket>| {
        let buckets = known.values().flat_map(buckets);
        buckets.map(|it| it.blocks.count).sum::<u64>()
    };
    assert_eq!(all(|it| &it.sizes), 100);
    assert_eq!(all(|it| &it.lifetimes), 20);
}

/// Check that allocators round as the current versions of Debian 12 did: sizes, and the usable size that `malloc_usable_size` returned.
#[test]
fn rounding_is_that_of_real_allocators() {
    const RETURNED: [(Family, &[(u64, u64)]); 4] = [
        (
            Family::Glibc,
            &[
                (0, 24),
                (24, 24),
                (25, 40),
                (40, 40),
                (41, 56),
                (1000, 1000),
                (1001, 1016),
                (100_000, 100_008),
            ],
        ),
        (
            Family::Jemalloc,
            &[
                (0, 8),
                (8, 8),
                (9, 16),
                (17, 32),
                (33, 48),
                (49, 64),
                (112, 112),
                (113, 128),
                (129, 160),
                (256, 256),
                (257, 320),
                (1025, 1280),
                (14337, 16384),
                (16385, 20480),
                (262_145, 327_680),
                (538_528, 655_360),
                (33_554_433, 41_943_040),
            ],
        ),
        (
            Family::Tcmalloc,
            &[
                (0, 8),
                (8, 8),
                (9, 16),
                (129, 144),
                (241, 256),
                (257, 288),
                (513, 576),
                (769, 896),
                (2049, 2304),
                (3329, 4096),
                (6657, 8192),
                (9217, 10_240),
                (114_689, 122_880),
                (262_145, 270_336),
                (300_000, 303_104),
            ],
        ),
        (
            Family::Mimalloc,
            &[
                (0, 8),
                (9, 16),
                (17, 32),
                (65, 80),
                (129, 160),
                (98_305, 114_688),
                (131_072, 131_072),
                (131_073, 196_608),
                (472_992, 524_288),
                (538_528, 1_048_576),
                (8_402_848, 9_437_184),
                (33_568_672, 37_748_736),
            ],
        ),
    ];
    for (family, returned) in RETURNED {
        for (size, usable) in returned {
            assert_eq!(size + family.waste(*size), *usable, "{family:?} {size}");
        }
        assert_eq!(Family::of_kind(family.name()), Some(family));
        for size in [u64::MAX, u64::MAX - 7, u64::MAX / 2] {
            family.waste(size);
        }
    }
}
