//! Prologues as compilers wrote them, cut after the last possible location and ended with `ret`.

use std::fs::File;

use super::super::{Placer, Reason};
use super::*;
use crate::kernel::version;
use crate::probes::allocators;

struct Known {
    name: &'static str,
    program: &'static str,
    code: &'static [u8],
    offset: u64,
    instruction: &'static str,
    /// The needed arguments, and the numbers of their registers.
    registers: &'static [(usize, u8)],
}

#[rustfmt::skip]
const KNOWN: &[Known] = &[
    Known { name: "glibc 2.36 malloc", program: "malloc_entry",
        code: &[0x41, 0x54, 0x55, 0x53, 0x48, 0x89, 0xfb, 0xc3],
        offset: 0, instruction: "push r12", registers: &[(0, RDI)] },
    Known { name: "glibc 2.36 free", program: "free_entry",
        code: &[0x48, 0x85, 0xff, 0x0f, 0x84, 6, 0, 0, 0, 0x55, 0x48, 0x8d, 0x77, 0xf0, 0x53, 0xc3],
        offset: 9, instruction: "push rbp", registers: &[(0, RDI)] },
    Known { name: "glibc 2.36 calloc", program: "calloc_entry",
        code: &[0x41, 0x55, 0x48, 0x89, 0xf8, 0x41, 0x54, 0xc3],
        offset: 0, instruction: "push r13", registers: &[(0, RDI), (1, RSI)] },
    Known { name: "glibc 2.36 posix_memalign", program: "posix_memalign_entry",
        code: &[0x80, 0x3d, 0x01, 0x02, 0x14, 0, 0, 0x41, 0x54, 0x49, 0x89, 0xd4, 0xc3],
        offset: 7, instruction: "push r12", registers: &[(0, RDI), (2, 2)] },
    Known { name: "glibc 2.36 memalign", program: "aligned_entry",
        code: &[0x80, 0x3d, 0x71, 0x0e, 0x14, 0, 0, 0x74, 0x05, 0xe9, 0x32, 0xf6, 0xff, 0xff, 0xc3],
        offset: 7, instruction: "je", registers: &[(1, RSI)] },
    Known { name: "jemalloc 5.3 malloc", program: "malloc_entry",
        code: &[0x48, 0x81, 0xff, 0, 0x10, 0, 0, 0x0f, 0x87, 4, 0, 0, 0, 0x48, 0x8d, 0x47, 7, 0xc3],
        offset: 7, instruction: "ja", registers: &[(0, RDI)] },
    Known { name: "tcmalloc 2.10 malloc", program: "malloc_entry",
        code: &[0x48, 0x8b, 0x05, 0xf9, 0x32, 1, 0, 0x49, 0x89, 0xf8, 0x48, 0x85, 0xc0, 0x0f, 0x85, 0, 0, 0, 0, 0xc3],
        offset: 13, instruction: "jne", registers: &[(0, RDI)] },
    Known { name: "tcmalloc 2.10 aligned_alloc", program: "aligned_entry",
        code: &[0x49, 0x89, 0xf8, 0x48, 0x81, 0xff, 0, 0x20, 0, 0, 0x0f, 0x87, 0, 0, 0, 0, 0xc3],
        offset: 10, instruction: "ja", registers: &[(1, RSI)] },
    Known { name: "mimalloc 2.0 malloc", program: "malloc_entry",
        code: &[0x48, 0x8b, 0x05, 0x49, 0xb4, 0, 0, 0x48, 0x89, 0xfe, 0x64, 0x48, 0x8b, 0x38, 0x48, 0x81, 0xfe, 0, 4, 0, 0, 0x77, 0, 0xc3],
        offset: 21, instruction: "ja", registers: &[(0, RSI)] },
    Known { name: "mimalloc 2.0 realloc", program: "realloc_entry",
        code: &[0x48, 0x8b, 0x05, 0x49, 0xa9, 0, 0, 0x48, 0x89, 0xf2, 0x48, 0x89, 0xfe, 0x64, 0x48, 0x8b, 0, 0x48, 0x89, 0xc7, 0xe9, 0xf7, 0x4e, 0xff, 0xff],
        offset: 20, instruction: "jmp", registers: &[(0, RSI), (1, 2)] },
    Known { name: "mimalloc 2.0 calloc", program: "calloc_entry",
        code: &[0x48, 0x8b, 0x15, 0xc9, 0xad, 0, 0, 0x48, 0x89, 0xf8, 0x64, 0x48, 0x8b, 0x3a, 0x48, 0x83, 0xf8, 1, 0x74, 0, 0xc3],
        offset: 18, instruction: "je", registers: &[(0, RAX), (1, RSI)] },
    Known { name: "musl 1.2 malloc", program: "malloc_entry",
        code: &[0xe9, 0x6b, 0x19, 0, 0],
        offset: 0, instruction: "jmp", registers: &[(0, RDI)] },
];

/// Check that the prologues of well-known allocators get the locations that were found by hand.
#[test]
fn prologues_of_allocators_are_placed() {
    for known in KNOWN {
        let placement = place_whole(known.code, known.program);
        assert_eq!(placement.offset, known.offset, "{}", known.name);
        assert_eq!(placement.instruction, known.instruction, "{}", known.name);
        for (argument, number) in known.registers {
            let found = placement.registers[*argument];
            assert_eq!(found, register(*number), "{}", known.name);
        }
    }
}

/// Check that each location in this machine's C library is correct, and that `free`, which every allocation
/// pays for, does not need a second trap.
#[test]
fn the_c_library_is_placed() {
    let found = allocators::of_this_process().allocators;
    for allocator in &found {
        let mut code = vec![0; 4096];
        for place in &allocator.functions {
            let placement = &place.placed;
            std::os::unix::fs::FileExt::read_exact_at(&allocator.file, &mut code, place.offset)
                .unwrap();
            checker::check(&code, needs(place.hook.entry), placement);
            if place.names.iter().any(|name| name == "free") {
                assert!(!placement.is_stepped, "{placement:?}");
            }
        }
    }
    assert!(!found.is_empty());
}

/// Check that the entry is probed in a file without code for this processor, and at an offset after the end
/// of a file.
#[test]
fn unknown_files_keep_the_entry() {
    let place = |path: &str, offset| {
        let file = File::open(path).unwrap();
        Placer::new(&file, version::running()).place(
            offset,
            Some(16),
            16,
            std::iter::empty(),
            Needs::ALL,
        )
    };
    let other = place("/etc/passwd", 0);
    assert_eq!((other.offset, other.reason), (0, Reason::NoRules));
    let beyond = place("/proc/self/exe", u64::MAX >> 2);
    assert_eq!((beyond.offset, beyond.reason), (0, Reason::Unreadable));
}
