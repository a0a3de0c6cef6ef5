//! Runs the code in this process, between allocator functions that only say how they were entered.

use std::sync::atomic::{AtomicU64, Ordering};

use heaptrace_common::hints::{address_slot, page_slot, value};

use super::*;

/// What a function returns if it was entered behind its probe.
const PASSED: u64 = u64::MAX;

/// A function of all arguments that an entry may get.
type Entry = extern "C" fn(u64, u64, u64) -> u64;

/// A call of an entry for so many bytes.
type Call = fn(Entry, u64) -> u64;

/// The code, mapped into this process, with all functions.
struct Mapped {
    base: u64,
}

impl Mapped {
    fn new(mean: u64) -> Self {
        let length = MARK + MARK_BYTES + PAGE;
        // SAFETY: a new mapping. It is never unmapped, as in a target.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED);
        let base = base as u64;
        // The function: `mov rax, r11; ret` at its entry, `mov rax, -1; ret` behind its probe, a `nop` of four bytes.
        let function = base + (MARK + MARK_BYTES) as u64;
        let body = [
            0x4c, 0x89, 0xd8, 0xc3, 0x48, 0xc7, 0xc0, 0xff, 0xff, 0xff, 0xff, 0xc3,
        ];
        let functions: Vec<Function> = (0..FUNCTIONS.len())
            .map(|number| Function {
                number,
                address: function,
                skipped: Skipped {
                    bytes: vec![0x0f, 0x1f, 0x40, 0],
                    fixes: Vec::new(),
                    resume: 4,
                },
                may_call_others: number % 2 == 0,
                allocator: (0x1111, 0x2222),
                entry_program: "malloc_entry",
            })
            .collect();
        let mapped = Self { base };
        let code = code(base, 0x1234_5678, &functions).unwrap_or_default();
        assert_eq!(code.len(), CODE_BYTES);
        mapped.write(base, &code);
        mapped.write(mean_at(base), &data(mean, 99, (0, 0), &[]));
        mapped.write(function, &body);
        mapped
    }

    fn write(&self, to: u64, bytes: &[u8]) {
        // SAFETY: within the mapping.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, bytes.len()) };
    }

    fn entry(&self, name: &str) -> Entry {
        self.entry_of(name, Way::Sampled)
    }

    fn entry_of(&self, name: &str, way: Way) -> Entry {
        let number = FUNCTIONS.iter().position(|it| *it == name);
        let entry = number.and_then(|number| entry(self.base, number, way));
        assert!(entry.is_some(), "{name} has no entry");
        let entry = entry.unwrap_or_default();
        // SAFETY: the code at that address is a function of this type.
        unsafe { std::mem::transmute::<u64, Entry>(entry) }
    }

    /// Adds to a slot of the hint array.
    fn hint(&self, slot: u32, number: u64) {
        let at = self.base + HINTS as u64 + 8 * u64::from(slot);
        // SAFETY: within the mapping, and aligned.
        let slot = unsafe { AtomicU64::from_ptr(at as *mut u64) };
        slot.fetch_add(number, Ordering::Relaxed);
    }

    fn record(&self, address: u64) {
        self.hint(address_slot(address), value(address));
        self.hint(page_slot(address), 1);
    }
}

/// Forgets what earlier code left in this thread: a new thread may get the memory of one that has ended.
fn begin_anew() {
    // SAFETY: three words that glibc doesn't use.
    unsafe {
        std::arch::asm!(
            "mov qword ptr fs:[0x80], 0",
            "mov qword ptr fs:[0x88], 0",
            "mov qword ptr fs:[0x90], 0",
        );
    }
}

/// How far a count of samples is from the expected one, in standard deviations.
fn deviations(sampled: u64, calls: u64, probability: f64) -> f64 {
    let expected = calls as f64 * probability;
    (sampled as f64 - expected) / (expected * (1.0 - probability)).sqrt()
}

/// Check that each allocating entry samples with the probability that a call's weight is computed from, whatever the
/// size, and passes the mean, in several threads with countdowns of their own.
#[test]
fn samples_are_unbiased() {
    const CALLS: u64 = 400_000;
    const MEAN: u64 = 8192;
    let mapped = Mapped::new(MEAN);
    let cases: [(&str, Call); 8] = [
        ("malloc", |entry, size| entry(size, 0, 0)),
        ("calloc", |entry, size| entry(2, size / 2, 0)),
        ("realloc", |entry, size| entry(0, size, 0)),
        ("realloc", |entry, size| entry(0x5000, size, 0)),
        ("aligned_alloc", |entry, size| entry(64, size, 0)),
        ("memalign", |entry, size| entry(64, size, 0)),
        ("posix_memalign", |entry, size| entry(0, 64, size)),
        ("_ZnwmRKSt9nothrow_t", |entry, size| entry(size, 0, 0)),
    ];
    for (name, call) in cases {
        let entry = mapped.entry(name);
        for size in [2, 64, 1000, 8192, 100_000] {
            let sampled: u64 = std::thread::scope(|scope| {
                let count = || {
                    begin_anew();
                    (0..CALLS)
                        .filter(|_| match call(entry, size) {
                            PASSED => false,
                            mean => {
                                assert_eq!(mean, MEAN);
                                true
                            }
                        })
                        .count() as u64
                };
                let threads: Vec<_> = (0..2).map(|_| scope.spawn(count)).collect();
                threads.into_iter().map(|it| it.join().unwrap()).sum()
            });
            let probability = 1.0 - (-(size as f64) / MEAN as f64).exp();
            let off = deviations(sampled, 2 * CALLS, probability);
            assert!(off.abs() < 5.0, "{name}({size}): {sampled}, {off:.1} σ");
        }
    }
}

/// Check that code is recognized whatever its cookie, and not if anything else of it differs, and that its entries lead
/// to its functions.
#[test]
fn code_is_recognized() {
    let base = 0x7000_0000_0000;
    let function = |number: usize, address| Function {
        number,
        address,
        skipped: Skipped {
            bytes: vec![0x0f, 0x1f, 0x40, 0],
            fixes: Vec::new(),
            resume: 4,
        },
        may_call_others: true,
        allocator: (base, base + 0x20_0000),
        entry_program: "malloc_entry",
    };
    let functions = [function(0, base + 0x10_0000), function(1, base + 0x10_0200)];
    let bytes = code(base, 0x1234, &functions).unwrap();
    assert!(is_code(&bytes, base, &functions));
    assert!(is_code(
        &code(base, u64::MAX, &functions).unwrap(),
        base,
        &functions
    ));
    assert!(!is_code(&bytes, base + 4096, &functions));
    assert!(!is_code(&bytes, base, &functions[..1]));
    assert!(!is_code(&bytes[..COOKIE], base, &functions));
    let moved = [functions[0].clone(), function(1, base + 0x10_0208)];
    assert!(!is_code(&bytes, base, &moved));
    for at in (0..bytes.len()).filter(|at| !(COOKIE..COOKIE + 8).contains(at)) {
        let mut other = bytes.clone();
        other[at] ^= 1;
        assert!(!is_code(&other, base, &functions), "{at:#x}");
    }
    let expected = [0, 1].map(|number| {
        let ways = [Way::Sampled, Way::Exact];
        ways.map(|way| (entry(base, number, way).unwrap(), functions[number].address))
    });
    assert_eq!(entries(&bytes, base), expected.concat());
    let mut other = bytes;
    other[0] ^= 1;
    assert_eq!(entries(&other, base), []);
    let all = [other, data(1, 2, (7, 8), &[])].concat();
    assert_eq!(owner(&all), Some((7, 8)));
}

/// Check that a call for 0 bytes counts as one byte, and that a product that overflows is seen but not sampled.
#[test]
fn odd_sizes() {
    begin_anew();
    let mapped = Mapped::new(16);
    let malloc = mapped.entry("malloc");
    let sampled = (0..100_000).filter(|_| malloc(0, 0, 0) != PASSED).count() as u64;
    let off = deviations(sampled, 100_000, 1.0 - (-1.0_f64 / 16.0).exp());
    assert!(off.abs() < 5.0, "{sampled}");
    assert_eq!(malloc(u64::MAX, 0, 0), 16);
    assert_ne!(mapped.entry("calloc")(u64::MAX, 2, 0), PASSED);
}

/// Check that only the free of a recorded block is seen, also if others share its page, or the slot of its address.
#[test]
fn frees_of_recorded_blocks_are_seen() {
    let mapped = Mapped::new(1 << 40);
    let (block, neighbour) = (0x7f12_3456_7010, 0x7f12_3456_7030);
    let other = (0..1 << 20)
        .map(|n| block + 8 * n)
        .find(|it| *it != block && address_slot(*it) == address_slot(block))
        .unwrap();
    for name in ["free", "_ZdlPv", "_ZdaPvm", "_ZdlPvmSt11align_val_t"] {
        let free = mapped.entry(name);
        assert_eq!(free(block, 0, 0), PASSED);
        assert_eq!(free(0, 0, 0), PASSED);
    }
    mapped.record(block);
    for name in ["free", "realloc", "_ZdlPv", "_ZdlPvSt11align_val_t"] {
        let free = mapped.entry(name);
        assert_eq!(free(block, 1, 0), 0, "{name}");
        assert_eq!(free(neighbour, 1, 0), PASSED, "{name}");
        assert_eq!(free(other, 1, 0), PASSED, "{name}");
    }
    // Two blocks in a slot: every free of an address of theirs is seen, that of a third, too.
    mapped.record(other);
    let free = mapped.entry("free");
    assert_eq!((free(block, 0, 0), free(other, 0, 0)), (0, 0));
    mapped.hint(address_slot(block), value(block).wrapping_neg());
    mapped.hint(page_slot(block), 1_u64.wrapping_neg());
    assert_eq!((free(block, 0, 0), free(other, 0, 0)), (PASSED, 0));
}

/// Check that a new mean holds for the next countdown, and that the one that runs keeps its own.
#[test]
fn a_countdown_keeps_its_mean() {
    let mapped = Mapped::new(1 << 20);
    let malloc = mapped.entry("malloc");
    begin_anew();
    let next = || (0..).map(|_| malloc(64, 0, 0)).find(|mean| *mean != PASSED);
    assert_eq!(next(), Some(1 << 20));
    mapped.write(mean_at(mapped.base), &4096_u64.to_le_bytes());
    assert_eq!(next(), Some(1 << 20));
    assert_eq!(next(), Some(4096));
}

/// Check that the entries of an exact run make their call with its arguments, give its result back, keep the arguments for the
/// probe behind it, and forget the call; that frees go on to their function; and that each entry has its probe on a `nop` of
/// five bytes.
#[test]
fn every_call_is_made() {
    let mapped = Mapped::new(1);
    mapped.write(mark_at(mapped.base), &1_u64.to_le_bytes());
    for name in [
        "malloc",
        "calloc",
        "memalign",
        "aligned_alloc",
        "posix_memalign",
        "free",
        "_ZdlPvm",
    ] {
        let entry = mapped.entry_of(name, Way::Exact);
        let (mut first, mut second, mut third) = (7_u64, 8_u64, 9_u64);
        let (result, passed_from, begin, end): (u64, u64, u64, u64);
        // SAFETY: the entry is a function of three arguments; all that a function may change is named.
        unsafe {
            std::arch::asm!(
                "call {entry}",
                "mov rcx, qword ptr fs:[0x98]",
                entry = in(reg) entry,
                lateout("rcx") passed_from,
                inout("rdi") first,
                inout("rsi") second,
                inout("rdx") third,
                lateout("rax") result,
                lateout("r8") begin,
                lateout("r9") end,
                clobber_abi("C"),
            );
        }
        assert_eq!((result, first, second, third), (PASSED, 7, 8, 9), "{name}");
        assert_eq!((begin, end), (0x1111, 0x2222), "{name}");
        if !["free", "_ZdlPvm"].contains(&name) {
            assert_eq!(passed_from, 0, "{name}");
        }
    }
    // In a forked child, the function itself is called.
    mapped.write(mark_at(mapped.base), &0_u64.to_le_bytes());
    for name in ["malloc", "free"] {
        assert_ne!(mapped.entry_of(name, Way::Exact)(7, 8, 9), PASSED, "{name}");
    }
    for name in ["realloc", "_Znwm"] {
        let number = FUNCTIONS.iter().position(|it| *it == name);
        assert_eq!(
            number.and_then(|it| entry(mapped.base, it, Way::Exact)),
            None
        );
    }
    let function = |name: &str, entry_program| Function {
        number: FUNCTIONS.iter().position(|it| *it == name).unwrap(),
        address: 0x4000,
        skipped: Skipped {
            bytes: vec![0x0f, 0x1f, 0x40, 0],
            fixes: Vec::new(),
            resume: 4,
        },
        may_call_others: false,
        allocator: (0, 0),
        entry_program,
    };
    let functions = [
        function("malloc", "malloc_entry"),
        function("aligned_alloc", "heap_aligned_entry"),
        function("realloc", "realloc_entry"),
        function("free", "free_entry"),
    ];
    let has_entry = functions.each_ref().map(|it| it.has_entry(Way::Exact));
    assert_eq!(has_entry, [true, false, false, true]);
    let code = code(0x1000, 7, &functions).unwrap();
    let probes = probes(&functions);
    assert_eq!(
        probes.iter().map(|it| it.program).collect::<Vec<_>>(),
        ["free_entry", "malloc_done"]
    );
    for probe in probes {
        let at = probe.offset as usize;
        assert_eq!(
            code[at..at + 5],
            [0x0f, 0x1f, 0x44, 0, 0],
            "{}",
            probe.function
        );
    }
}
