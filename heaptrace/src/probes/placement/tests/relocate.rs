//! Tests of copies of functions' first instructions: by hand, of random code, and of this machine's C library, whose
//! functions are then called by their copies.

use std::ffi::c_void;
use std::ptr::null_mut;

use iced_x86::{Decoder, DecoderOptions, OpKind};

use super::super::relocate::skipped;
use super::super::{Fix, Skipped};
use crate::probes::allocators::{self, Allocator, ProbedFunction};
use crate::proc::maps;
use crate::random::Random;

/// Addresses for copies and their functions: the copy is before, and behind.
const ADDRESSES: [(u64, u64); 2] = [(0x1000_0000, 0x2000_0000), (0x4000_1000, 0x2000_0040)];

/// Fails unless each instruction of a copy does what the function's own does.
#[track_caller]
fn check(code: &[u8], skipped: &Skipped) {
    for (copy_at, function_at) in ADDRESSES {
        let copy = skipped.copy_for(copy_at, function_at).unwrap();
        let mut originals = Decoder::with_ip(64, code, function_at, DecoderOptions::NONE);
        let mut copies = Decoder::with_ip(64, &copy, copy_at, DecoderOptions::NONE);
        while copies.can_decode() {
            let (own, other) = (originals.decode(), copies.decode());
            assert!(!own.is_invalid() && !other.is_invalid());
            assert_eq!(own.mnemonic(), other.mnemonic());
            assert_eq!(
                own.is_ip_rel_memory_operand(),
                other.is_ip_rel_memory_operand()
            );
            if own.op0_kind() == OpKind::NearBranch64 {
                assert_eq!(own.near_branch_target(), other.near_branch_target());
            } else if own.is_ip_rel_memory_operand() {
                assert_eq!(own.code(), other.code());
                assert_eq!(own.ip_rel_memory_address(), other.ip_rel_memory_address());
            } else {
                let bytes = |base, it: &iced_x86::Instruction, all: &[u8]| {
                    let start = (it.ip() - base) as usize;
                    all[start..start + it.len()].to_vec()
                };
                let copied = bytes(copy_at, &other, &copy);
                assert_eq!(bytes(function_at, &own, code), copied);
            }
        }
        assert_eq!(originals.ip(), function_at + skipped.resume);
    }
    assert!(skipped.is_sound(0, code.len() as u64));
}

/// Fails unless a copy passes for one of this code, and for none of other code.
#[track_caller]
fn check_original(code: &[u8], skipped: &Skipped) {
    assert!(skipped.is_of(code));
    // No other instruction passes for it.
    for at in 0..skipped.bytes.len() {
        let is_displacement = |fix: &Fix| (fix.at..fix.at + 4).contains(&(at as u8));
        if !skipped.fixes.iter().any(is_displacement) {
            let mut other = skipped.clone();
            other.bytes[at] ^= 1;
            assert!(!other.is_of(code), "{at}");
        }
    }
}

/// The copy of a whole piece of code, whose last instruction is at an offset.
#[track_caller]
fn copied(code: &[u8], probed: u64) -> Skipped {
    let skipped = skipped(code, probed).unwrap();
    check(code, &skipped);
    check_original(code, &skipped);
    skipped
}

/// Check that instructions without a target are copied as they are, up to and with the probed one.
#[test]
fn plain_instructions_are_copied() {
    // endbr64; mov rbx, rdi; sub rsp, 8; push r12; push rbp.
    let code = [
        0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x89, 0xfb, 0x48, 0x83, 0xec, 8, 0x41, 0x54, 0x55,
    ];
    for (probed, end) in [(0, 4), (4, 7), (7, 11), (11, 13), (13, 14)] {
        let skipped = copied(&code, probed);
        assert_eq!(skipped.bytes, code[..end]);
        assert_eq!((skipped.fixes.len(), skipped.resume), (0, end as u64));
    }
}

/// Check that displacements from the instruction pointer are fixed, also with an immediate behind them.
#[test]
fn displacements_are_fixed() {
    for (code, at) in [
        // mov rax, [rip + 16]; lea rax, [rip - 16].
        (&[0x48, 0x8b, 0x05, 16, 0, 0, 0][..], 3),
        (&[0x48, 0x8d, 0x05, 0xf0, 0xff, 0xff, 0xff], 3),
        // cmp byte [rip], 1; cmp word [rip], 0x102; cmp dword [rip], 0x01020304; cmp qword [rip], 1.
        (&[0x80, 0x3d, 0, 0, 0, 0, 1], 2),
        (&[0x66, 0x81, 0x3d, 0, 0, 0, 0, 2, 1], 3),
        (&[0x81, 0x3d, 0, 0, 0, 0, 4, 3, 2, 1], 2),
        (&[0x48, 0x83, 0x3d, 0, 0, 0, 0, 1], 3),
        // jmp [rip + 8].
        (&[0xff, 0x25, 8, 0, 0, 0], 2),
        // vmovdqa ymm0, [rip + 32].
        (&[0xc5, 0xfd, 0x6f, 0x05, 32, 0, 0, 0], 4),
    ] {
        let skipped = copied(code, 0);
        let [fix] = skipped.fixes[..] else {
            panic!("{skipped:?}")
        };
        assert_eq!(
            (usize::from(fix.at), usize::from(fix.end)),
            (at, code.len())
        );
    }
}

/// Check that short jumps become long ones with the same target, and that displacements behind them are fixed where they
/// then are.
#[test]
fn jumps_are_widened() {
    for condition in 0..16 {
        // jCC; mov rax, [rip]; push rbp.
        let code = [0x70 | condition, 40, 0x48, 0x8b, 0x05, 0, 0, 0, 0, 0x55];
        let skipped = copied(&code, 9);
        assert_eq!(skipped.bytes.len(), 14);
        assert_eq!(skipped.bytes[..2], [0x0f, 0x80 | condition]);
        let places: Vec<_> = skipped.fixes.iter().map(|fix| (fix.at, fix.end)).collect();
        assert_eq!(places, [(2, 6), (9, 13)]);
        assert_eq!(skipped.fixes[0].target, 42);
        // The long form; to before the entry.
        let code = [0x0f, 0x80 | condition, 0xf0, 0xff, 0xff, 0xff, 0x55];
        assert_eq!(copied(&code, 6).fixes[0].target, -10);
        // As the probed instruction, with the next instruction as its target.
        assert_eq!(copied(&[0x70 | condition, 0], 0).fixes[0].target, 2);
    }
    for code in [&[0xeb, 5][..], &[0xe9, 5, 0, 0, 0]] {
        let jump = copied(code, 0);
        assert_eq!((jump.bytes[0], jump.bytes.len()), (0xe9, 5));
        assert_eq!(jump.fixes[0].target, code.len() as i64 + 5);
    }
}

/// Check that whatever can't be copied without doubt is refused.
#[test]
fn doubtful_code_is_refused() {
    for (what, code, probed) in [
        ("a call", &[0xe8, 0, 0, 0, 0, 0x55][..], 5),
        ("a call that is probed", &[0xe8, 0, 0, 0, 0], 0),
        ("a call by a register", &[0xff, 0xd0, 0x55], 2),
        ("a call by a slot", &[0xff, 0x15, 0, 0, 0, 0, 0x55], 6),
        ("a system call", &[0x0f, 0x05, 0x55], 2),
        ("a trap", &[0xcc, 0x55], 1),
        ("a jump over code", &[0xeb, 1, 0x55, 0x55], 3),
        ("a return before the probe", &[0xc3, 0x55], 1),
        ("a jump to the entry", &[0x55, 0x74, 0xfd, 0x55], 3),
        ("a jump within the copy", &[0x74, 1, 0x90, 0x55], 3),
        ("a jump to the probed instruction", &[0x74, 0, 0x55], 2),
        ("a loop", &[0xe2, 40, 0x55], 2),
        ("jrcxz", &[0xe3, 40, 0x55], 2),
        ("a transaction", &[0xc7, 0xf8, 40, 0, 0, 0, 0x55], 6),
        ("a cut target", &[0x66, 0x0f, 0x84, 0, 0, 0, 0, 0x55], 7),
        ("a cut address", &[0x67, 0x8b, 0x05, 0, 0, 0, 0], 0),
        ("a segment", &[0x64, 0x8b, 0x05, 0, 0, 0, 0], 0),
        ("no instruction", &[0x06, 0x55], 1),
        ("half an instruction", &[0x48, 0x8b, 0x05], 0),
        ("between two instructions", &[0x48, 0x89, 0xfb, 0x55], 1),
        ("behind the code", &[0x55], 1),
        ("nothing", &[], 0),
    ] {
        assert_eq!(skipped(code, probed), None, "{what}");
    }
    // 96 bytes fit, and no more.
    assert_eq!(copied(&[0x90; 96], 95).bytes.len(), 96);
    assert_eq!(skipped(&[0x90; 97], 96), None);
    // 32 jumps of two bytes become 192.
    let jumps = [0x74, 0x7f].repeat(32);
    assert_eq!(skipped(&jumps, 62), None);
}

/// Check that a target that is too far from a copy gives none.
#[test]
fn far_copies_are_refused() {
    let skipped = copied(&[0xe9, 0, 0, 0, 0], 0);
    assert!(
        skipped
            .copy_for(1 << 40, (1 << 40) + (1 << 31) - 1)
            .is_some()
    );
    assert_eq!(skipped.copy_for(1 << 40, (1 << 40) + (1 << 31)), None);
    assert!(skipped.copy_for(1 << 40, (1 << 40) - (1 << 31)).is_some());
    assert_eq!(skipped.copy_for(1 << 40, (1 << 40) - (1 << 31) - 1), None);
    assert_eq!(
        skipped.copy_for(0, u64::MAX - 9).unwrap()[1..],
        (-10i32).to_le_bytes()
    );
}

/// Check that every copy of random code does what the code does, and that many occur.
#[test]
fn copies_of_random_code_match() {
    const PIECES: &[&[u8]] = &[
        &[0x55],
        &[0xf3, 0x0f, 0x1e, 0xfa],
        &[0x48, 0x85, 0xff],
        &[0x48, 0x8b, 0x05],
        &[0x80, 0x3d],
        &[0x48, 0x81, 0x3d],
        &[0x0f, 0x85],
        &[0xeb],
        &[0x74],
        &[0xe9],
        &[0xff, 0x25],
        &[0, 0, 0, 0],
        &[0x62],
        &[0xc5],
    ];
    let mut numbers = Random(11);
    let mut found = 0;
    for _ in 0..20_000 {
        let mut code = Vec::new();
        for _ in 0..1 + numbers.below(8) {
            match numbers.below(4) {
                0 => code.push(numbers.next() as u8),
                1 => code.extend((numbers.next() as u32 >> 12).to_le_bytes()),
                _ => code.extend(PIECES[numbers.below(PIECES.len())]),
            }
        }
        let probed = numbers.below(12) as u64;
        let is_near = |it: &Skipped| it.fixes.iter().all(|fix| fix.target.abs() < 1 << 28);
        if let Some(skipped) = skipped(&code, probed).filter(is_near) {
            check(&code, &skipped);
            found += 1 + skipped.fixes.len();
        }
    }
    assert!(found > 3_000, "{found}");
}

/// The C library of this process.
fn c_library() -> Allocator {
    let mut found = allocators::of_this_process().allocators.into_iter();
    found.find(|it| it.path.contains("/libc")).unwrap()
}

fn function<'a>(library: &'a Allocator, name: &str) -> &'a ProbedFunction {
    let has_name = |it: &&ProbedFunction| it.names.iter().any(|other| other == name);
    library.functions.iter().find(has_name).unwrap()
}

/// Check that the functions of this machine's C library can be copied.
#[test]
fn the_c_library_is_copied() {
    let library = c_library();
    let mut code = vec![0; 4096];
    for name in [
        "malloc",
        "free",
        "calloc",
        "realloc",
        "memalign",
        "posix_memalign",
        "aligned_alloc",
    ] {
        let function = function(&library, name);
        let skipped = function.skipped.as_ref().expect(name);
        std::os::unix::fs::FileExt::read_exact_at(&library.file, &mut code, function.offset)
            .unwrap();
        check(&code, skipped);
        assert!(skipped.resume > function.placed.offset, "{name}");
    }
}

/// Executable memory within reach of an address, for copies.
fn memory_near(address: u64) -> *mut u8 {
    const LENGTH: usize = 4096;
    let starts = (1..100).map(|step| (address & !0xfff).wrapping_sub(step << 24));
    for start in starts {
        // SAFETY: the kernel maps new memory there, or fails if there is some already.
        let memory = unsafe {
            libc::mmap(
                start as *mut c_void,
                LENGTH,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
                -1,
                0,
            )
        };
        if memory != libc::MAP_FAILED {
            return memory.cast();
        }
    }
    panic!("there is no free memory near {address:#x}");
}

/// Writes a copy of a function's first instructions to executable memory, with a jump to the instruction behind the probe.
/// Returns its address.
fn written(library: &Allocator, name: &str) -> *const u8 {
    let function = function(library, name);
    let text = maps::read(std::process::id()).unwrap();
    let address = maps::parse(&text)
        .filter(|it| it.executable && it.path == library.path)
        .find_map(|it| {
            let within = function.offset.checked_sub(it.offset)?;
            (within < it.end - it.start).then_some(it.start + within)
        })
        .unwrap();
    let memory = memory_near(address);
    let skipped = function.skipped.as_ref().unwrap();
    let mut bytes = skipped.copy_for(memory as u64, address).unwrap();
    // jmp [rip], and the address.
    bytes.extend([0xff, 0x25, 0, 0, 0, 0]);
    bytes.extend((address + skipped.resume).to_le_bytes());
    // SAFETY: the memory is writable, and longer than the longest copy.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory, bytes.len()) };
    memory
}

/// Check that the functions of this machine's C library work if they are called by copies of their first instructions.
#[test]
fn copies_are_executed() {
    type Malloc = extern "C" fn(usize) -> *mut u8;
    type Free = extern "C" fn(*mut u8);
    type Calloc = extern "C" fn(usize, usize) -> *mut u8;
    type Realloc = extern "C" fn(*mut u8, usize) -> *mut u8;
    type PosixMemalign = extern "C" fn(*mut *mut u8, usize, usize) -> i32;
    let library = c_library();
    let at = |name| written(&library, name);
    // SAFETY: each copy begins a function of this type.
    let (malloc, free, calloc, realloc, memalign, posix_memalign) = unsafe {
        (
            std::mem::transmute::<*const u8, Malloc>(at("malloc")),
            std::mem::transmute::<*const u8, Free>(at("free")),
            std::mem::transmute::<*const u8, Calloc>(at("calloc")),
            std::mem::transmute::<*const u8, Realloc>(at("realloc")),
            std::mem::transmute::<*const u8, Calloc>(at("memalign")),
            std::mem::transmute::<*const u8, PosixMemalign>(at("posix_memalign")),
        )
    };
    free(null_mut());
    for size in [0, 1, 24, 1000, 1 << 20] {
        let block = malloc(size);
        assert!(!block.is_null());
        // SAFETY: the block has this size.
        unsafe { block.write_bytes(7, size) };
        let longer = realloc(block, size + 4096);
        // SAFETY: the block has this size, and the bytes above.
        let content = unsafe { std::slice::from_raw_parts(longer, size) };
        assert!(content.iter().all(|byte| *byte == 7));
        free(longer);
        let zeroed = calloc(3, size + 1);
        // SAFETY: the block has this size, and is zeroed.
        let content = unsafe { std::slice::from_raw_parts(zeroed, 3 * (size + 1)) };
        assert!(content.iter().all(|byte| *byte == 0));
        free(zeroed);
        let aligned = memalign(4096, size);
        assert_eq!(aligned as usize % 4096, 0);
        free(aligned);
        let mut aligned = null_mut();
        assert_eq!(posix_memalign(&mut aligned, 256, size), 0);
        assert_eq!(aligned as usize % 256, 0);
        free(aligned);
        free(realloc(null_mut(), size));
    }
    assert!(malloc(usize::MAX).is_null() && calloc(usize::MAX, 2).is_null());
    assert_eq!(posix_memalign(&mut null_mut(), 3, 8), libc::EINVAL);
}
