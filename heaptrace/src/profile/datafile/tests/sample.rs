//! Updates with a value in every field.

use crate::join::{
    Allocator, BlockSizes, Bucket, Completeness, DutyCycle, End, EndCause, Errors, Exceeded,
    Family, Function, FunctionId, Generation, GenerationId, KilledAt, Kind, Language, Location,
    LocationId, Mark, MarkCause, Memory, Module, ModuleId, Overhead, OwnPeak, Process, ProcessId,
    Quality, RateChange, Rounding, RoundingClass, ShortLived, Site, SiteId, Stack, StackId, Tally,
    ThreadNameId, Totals, Traced, Unseen, Update, Usage,
};

pub(super) fn totals(n: u64) -> Totals {
    Totals {
        allocations: 10 * n,
        allocated_bytes: u64::MAX - n,
        frees: n,
        freed_bytes: 4 * n,
        live_allocations: 9 * n,
        live_bytes: 96 * n,
        left_allocations: 12 * n,
        left_bytes: 13 * n,
        uncertain_allocations: 2 * n,
        uncertain_bytes: 11 * n,
        peak_live_bytes: 97 * n,
        temporary_allocations: n / 2,
        errors: Errors {
            allocations: n,
            allocated_bytes: n + 1,
            frees: n + 2,
            freed_bytes: n + 3,
            live_allocations: n + 4,
            live_bytes: n + 5,
            left_allocations: n + 8,
            left_bytes: n + 9,
            peak_live_bytes: n + 6,
            temporary_allocations: n + 7,
            unseen: Unseen {
                allocations: n + 8,
                allocated_bytes: n + 9,
                frees: n + 10,
                freed_bytes: n + 11,
                live_allocations: n + 12,
                live_bytes: n + 13,
                left_allocations: n + 17,
                left_bytes: n + 18,
                peak_live_bytes: n + 14,
                temporary_allocations: n + 15,
            },
            mean_bytes: n + 16,
        },
    }
}

/// How a site uses its blocks; in the first update without errors, as in an exact run.
fn usage(n: u64) -> Usage {
    let blocks = |count| Tally {
        count,
        bytes: count << n,
        count_error: 3 * n,
        bytes_error: 5 * n,
    };
    let buckets = |indices: [u8; 3]| {
        let bucket = |index: u8| Bucket {
            index,
            blocks: blocks(u64::from(index) + 1),
        };
        indices.map(bucket).to_vec()
    };
    Usage {
        sizes: buckets([0, 1, 251]),
        lifetimes: buckets([7, 60, 61]),
        untimed: blocks(n),
        freed_elsewhere: blocks(2),
        reallocations: blocks(3 + n),
        chains: blocks(1),
        moves: blocks(4),
        rounding: vec![Rounding {
            family: Family::Jemalloc,
            bytes: 9,
            error: n,
            unfreed: 8,
            classes: vec![RoundingClass {
                from: 40,
                to: 40,
                blocks: 2,
                requested: 71,
                bytes: 9,
                error: n,
                unfreed: 8,
            }],
        }],
    }
}

pub(super) fn update(n: u32) -> Update {
    Update {
        elapsed_ns: u64::from(n) * 1_000_000_000,
        modules: vec![Module {
            path: format!("/usr/lib/lib{n}.so"),
            build_id: vec![n as u8; 20],
            text_start: 0x7f00_0000_0000,
            text_end: 0x7f00_0001_0000,
            text_offset: 0x1000,
            text_address: Some(0x40_1000),
            root: String::new(),
            started_as: "name\x1b".repeat(n as usize % 2),
        }],
        started: vec![(ModuleId(0), format!("name\x1b{n}"))],
        functions: vec![
            Function {
                language: Language::Python,
                name: "f.<locals>.<lambda>\x1b[2J\n\u{202e}".repeat(n as usize % 2),
                file: "/srv/äpp 日本.py\0".repeat((n as usize + 1) % 2),
            },
            Function {
                language: Language::Python,
                name: format!("<module>{n}"),
                file: "<frozen importlib._bootstrap>".to_owned(),
            },
        ],
        locations: vec![
            Location {
                module: Some(ModuleId(n)),
                address: 0x1234,
                function: None,
            },
            Location {
                module: None,
                address: 0xffff_ffff_ff60_0000,
                function: None,
            },
            Location {
                module: None,
                address: 7,
                function: Some(FunctionId(2 * n + 1)),
            },
        ],
        stacks: vec![Stack {
            locations: vec![
                LocationId(3 * n),
                LocationId(3 * n + 1),
                LocationId(3 * n + 2),
            ],
            completeness: match n % 3 {
                0 => Completeness::Complete,
                1 => Completeness::Truncated,
                _ => Completeness::Broken,
            },
        }],
        threads: vec![format!("worker\x1b{n}")],
        processes: vec![(
            ProcessId(0),
            Process {
                pid: 42,
                start_time_ns: 7,
                command: "a\x1b[2Jb".to_owned(),
                command_line: "a b".to_owned(),
                cgroup: "/user.slice".to_owned(),
                ended: n > 1,
                totals: totals(n.into()),
                untracked_frees: 3,
                failed_allocations: 1,
                lost: 5,
                merged: 6,
                allocators: vec![Allocator {
                    path: "/usr/lib/libc.so.6".to_owned(),
                    kind: "glibc".to_owned(),
                    hooks: vec!["malloc".to_owned(), "free".to_owned()],
                }],
                memory: Memory {
                    resident: 14,
                    peak_resident: 15,
                    resident_before: 16,
                },
                duty_cycle: (n > 0).then_some(DutyCycle {
                    from_ns: 8,
                    unprobed_ns: 9 * u64::from(n),
                    overhead: 10,
                    reached: 480,
                }),
                traced: (n > 0).then_some(Traced {
                    from_ns: 17,
                    age_ns: 18,
                    to_ns: (n > 1).then_some(19),
                }),
                end: (n > 1).then_some(End {
                    cause: match n % 2 {
                        0 => EndCause::OutOfMemory,
                        _ => EndCause::Signal {
                            number: 11,
                            has_core: true,
                        },
                    },
                    at_ns: 20,
                }),
                killed_at: (n > 1).then(|| KilledAt {
                    group: "/a\x1b.slice".to_owned(),
                    limit: 21,
                    kills_before: 22,
                    kills: 23,
                }),
            },
        )],
        sites: vec![(
            SiteId(n),
            Site {
                process: ProcessId(0),
                stack: StackId(n),
                thread: (n > 0).then_some(ThreadNameId(n)),
                kind: if n > 0 { Kind::Mapped } else { Kind::Heap },
                totals: totals(u64::from(n) + 1),
                slot: SiteId(n),
                own_peak: OwnPeak {
                    bytes: 11,
                    error: 12,
                    unseen: u64::from(n),
                },
                block_sizes: (n > 0).then(|| BlockSizes {
                    smallest: u64::from(n) - 1,
                    largest: 300,
                }),
            },
        )],
        usages: vec![(SiteId(n), usage(u64::from(n)))],
        marks: (0..n)
            .map(|n| Mark {
                number: 2 * n + 1,
                at_ns: 5 * u64::from(n),
                cause: match n % 4 {
                    0 => MarkCause::Timer,
                    1 => MarkCause::Signal,
                    2 => MarkCause::Key,
                    _ => MarkCause::Exceeded,
                },
            })
            .collect(),
        exceeded: (0..n)
            .map(|n| Exceeded {
                mark: n,
                at_ns: 5,
                limit_bytes: 6,
                live_bytes: 7,
                name: format!("server\x1b ({n})"),
                is_group: n % 2 == 1,
            })
            .collect(),
        generations: vec![(
            GenerationId(n),
            Generation {
                mark: n,
                site: Site {
                    process: ProcessId(0),
                    stack: StackId(n),
                    thread: Some(ThreadNameId(n)),
                    kind: Kind::Heap,
                    totals: totals(u64::from(n) + 2),
                    own_peak: OwnPeak::default(),
                    block_sizes: Some(BlockSizes::of(u64::MAX)),
                    slot: SiteId(0),
                },
                survived: vec![(n + 1, 70), (n + 2, 0)],
            },
        )],
        blocks: Vec::new(),
        live_blocks: None,
        reachability: Vec::new(),
        sizes: vec![n.into(), 7],
        rates: vec![RateChange {
            at_ns: n.into(),
            process: (n > 0).then_some(ProcessId(0)),
            mean_bytes: 1 << n,
        }],
        totals: totals(u64::from(n) + 1),
        quality: Quality {
            samples: 10,
            lost: [("ring full".to_owned(), 2), ("stack".to_owned(), 0)].into(),
            untracked_frees: 3,
            failed_allocations: 1,
            stacks_complete: 4,
            stacks_truncated: 5,
            stacks_broken: 6,
            noted: [("nested_calls".to_owned(), 3)].into(),
            unprobed: ["/lib/x.so".to_owned()].into(),
            without_tables: ["cc1 (7): /lib/x.so: no room".to_owned()].into(),
            unreadable: ["/lib/y.so: too slow".to_owned()].into(),
            short_lived: vec![ShortLived {
                command: "a\x1b[2Jb".to_owned(),
                cgroup: "/user.slice".to_owned(),
                processes: 20,
                lived_ns: 21,
            }],
            overhead: Overhead {
                hit_ns: 640,
                limit: 500,
                probes_ns: 31_000_000,
                used_ns: 1_000_000_000,
            },
            kernel_map_bytes: 1 << 30,
            agent_cpu_ns: 12,
            agent_peak_bytes: 13,
        },
    }
}
