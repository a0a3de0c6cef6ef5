//! A small profile with hostile names.

use crate::join::{
    Allocator, Completeness, Errors, Kind, Location, LocationId, Memory, Module, ModuleId, Note,
    Overhead, OwnPeak, Process, ProcessId, Quality, ShortLived, Site, Stack, StackId, Totals,
    Traced,
};
use crate::profile::{Frame, Profile, RunEnd, RunInfo, StringId, Symbols};

pub(super) const EVIL: &str = "evil\x1b[2J;\"<script>alert(1)</script>\n\u{9b}31m\u{202e} 12";

pub(super) fn totals(blocks: u64, size: u64, live: u64) -> Totals {
    Totals {
        allocations: blocks,
        allocated_bytes: blocks * size,
        frees: blocks - live,
        freed_bytes: (blocks - live) * size,
        live_allocations: live,
        live_bytes: live * size,
        left_allocations: 0,
        left_bytes: 0,
        uncertain_allocations: 0,
        uncertain_bytes: 0,
        peak_live_bytes: live * size + size,
        temporary_allocations: (blocks - live) / 2,
        errors: Errors::default(),
    }
}

/// Two processes and five stacks: an inlined function, hostile names, recursion, code without a module, and a
/// long C++ name.
pub(super) fn profile() -> Profile {
    let module = |path: &str, byte: u8, start| Module {
        path: path.to_owned(),
        build_id: vec![byte; 4],
        text_start: start,
        text_end: start + 0x10_0000,
        text_offset: 0x1000,
        text_address: None,
        root: String::new(),
        started_as: String::new(),
    };
    let location = |module, address| Location {
        module: Some(ModuleId(module)),
        address,
        function: None,
    };
    let stack = |locations: &[u32], completeness| Stack {
        locations: locations.iter().copied().map(LocationId).collect(),
        completeness,
    };
    let process = |pid, command: &str, totals, ended| Process {
        pid,
        start_time_ns: 5_000,
        command: command.to_owned(),
        command_line: format!("{command} --fast"),
        cgroup: "/user.slice/app\x1b.scope".to_owned(),
        ended,
        totals,
        untracked_frees: 3,
        failed_allocations: 1,
        lost: 5,
        merged: 0,
        memory: Memory::default(),
        duty_cycle: None,
        end: None,
        killed_at: None,
        traced: ended.then_some(Traced {
            from_ns: 2_000_000_000,
            age_ns: 1_125_000_000,
            to_ns: Some(9_500_000_000),
        }),
        allocators: vec![Allocator {
            path: "/usr/lib/x86_64-linux-gnu/libc.so.6".to_owned(),
            kind: "glibc".to_owned(),
            hooks: vec!["malloc".to_owned(), "free".to_owned()],
        }],
    };
    let site = |process, stack, totals: Totals| Site {
        // Each process had twice as much at its own peak as at that of the run.
        slot: crate::join::SiteId(0),
        own_peak: OwnPeak {
            bytes: 2 * totals.peak_live_bytes,
            ..OwnPeak::default()
        },
        block_sizes: None,
        process: ProcessId(process),
        stack: StackId(stack),
        thread: None,
        kind: Kind::Heap,
        totals,
    };
    let mut recursion = vec![2];
    recursion.extend([3; 60]);
    recursion.push(4);
    Profile {
        reachability: Vec::new(),
        usages: std::collections::BTreeMap::new(),
        info: RunInfo::exact("--pid 41 --pid 42"),
        end: RunEnd::Orderly,
        duration_ns: 12_500_000_000,
        modules: vec![
            module(
                "/usr/lib/x86_64-linux-gnu/libc.so.6",
                0xab,
                0x7f00_0000_1000,
            ),
            module(&format!("/opt/{EVIL}"), 0xcd, 0x55_0000_1000),
            module("/usr/bin/server", 0xef, 0x56_0000_1000),
        ],
        functions: Vec::new(),
        locations: vec![
            location(2, 0x1100),
            location(1, 0x1200),
            location(2, 0x1300),
            location(2, 0x1400),
            location(0, 0x2_7249),
            Location {
                module: None,
                address: 0x7ffd_1234,
                function: None,
            },
            location(2, 0x1500),
            // An address outside of the known mapping, without a symbol.
            location(2, 0x10),
        ],
        stacks: vec![
            stack(&[0, 2, 4], Completeness::Complete),
            stack(&[1, 4], Completeness::Complete),
            stack(&recursion, Completeness::Truncated),
            stack(&[5], Completeness::Broken),
            stack(&[6, 7], Completeness::Complete),
        ],
        range: None,
        threads: Vec::new(),
        processes: vec![
            process(41, "server", totals(1_300, 1_000, 120), false),
            process(42, EVIL, totals(10, 64, 10), true),
        ],
        sites: vec![
            site(0, 0, totals(1_000, 1_000, 100)),
            site(1, 1, totals(10, 64, 10)),
            site(0, 2, totals(200, 1_000, 20)),
            site(0, 3, totals(100, 1_000, 0)),
            site(0, 4, totals(3, 5, 1)),
        ],
        marks: Vec::new(),
        exceeded: Vec::new(),
        generations: Vec::new(),
        sizes: Vec::new(),
        rates: Vec::new(),
        totals: totals(1_313, 1_000, 130),
        quality: Quality {
            samples: 1_313,
            lost: [("ring full".to_owned(), 7), ("table full".to_owned(), 0)].into(),
            short_lived: vec![
                ShortLived {
                    command: EVIL.to_owned(),
                    cgroup: "/user.slice/app\x1b.scope".to_owned(),
                    processes: 1_200,
                    lived_ns: 24_000_000_000,
                },
                ShortLived {
                    command: "ls".to_owned(),
                    cgroup: String::new(),
                    processes: 34,
                    lived_ns: 340_000_000,
                },
            ],
            untracked_frees: 6,
            failed_allocations: 2,
            stacks_complete: 1_013,
            stacks_truncated: 200,
            stacks_broken: 100,
            noted: [
                ("nested calls".to_owned(), 4),
                ("other".to_owned(), 0),
                (Note::ProcessesShortLived.name().to_owned(), 1234),
            ]
            .into(),
            unprobed: ["/lib/\u{1b}libc.so.6".to_owned()].into(),
            without_tables: ["cc1 (7): /lib/\u{1b}libx.so: no room".to_owned()].into(),
            unreadable: ["/lib/y.so: too slow".to_owned()].into(),
            overhead: Overhead::default(),
            kernel_map_bytes: 256 << 20,
            agent_cpu_ns: 1_250_000_000,
            agent_peak_bytes: 48 << 20,
        },
    }
}

pub(super) fn symbols() -> Symbols {
    let strings = [
        "grab",
        "/home/user/src/server/alloc/pool.c",
        "handle_request",
        "/home/user/src/server/main.c",
        EVIL,
        "recurse",
        "__libc_start_call_main",
        "shop::Shelf<std::vector<std::basic_string<char, std::char_traits<char>, std::allocator<char> >, std::allocator<int> > >::put(std::map<int, int> const&, unsigned long)",
    ];
    let frame = |function: u32, file: Option<u32>, line, inlined| Frame {
        function: Some(StringId(function)),
        file: file.map(StringId),
        line,
        inlined,
    };
    let unknown = Frame {
        function: None,
        file: None,
        line: 0,
        inlined: false,
    };
    Symbols {
        strings: strings.map(str::to_owned).to_vec(),
        frames: vec![
            vec![frame(0, Some(1), 31, true), frame(2, Some(3), 120, false)],
            vec![frame(4, Some(4), 7, false)],
            vec![frame(2, Some(3), 99, false)],
            vec![frame(5, Some(3), 50, false)],
            vec![frame(6, None, 0, false)],
            vec![unknown],
            vec![frame(7, Some(3), 5, false)],
        ],
        ..Symbols::default()
    }
}
