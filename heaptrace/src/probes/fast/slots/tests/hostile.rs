//! Files and answers that no linker and no sound reader makes.

use super::super::answer::{MAX_SLOTS, MAX_STUBS, PAGE};
use super::super::libraries;
use super::super::{Part, SlotOf, Slots, StubOf, slots_of};
use super::crafted::{CODE, Crafted, FREE, GLOB_DAT, JUMP_SLOT, MALLOC, NAMES, SLOTS, doubtful};
use crate::jobs::reader_of_tests;
use crate::random::Random;
use crate::reader::{Reader, encode};
use crate::sys;

/// Check that slots that are not aligned, not loaded for writing or behind the end are left out.
#[test]
fn impossible_slots_are_left_out() {
    let at = [SLOTS + 4, 8, CODE, CODE - 4, u64::MAX - 7, SLOTS - 8];
    let crafted = Crafted {
        calls: at.map(|address| (address, MALLOC, JUMP_SLOT)).to_vec(),
        data: at.map(|address| (address, FREE, GLOB_DAT)).to_vec(),
        ..Crafted::default()
    };
    assert_eq!(crafted.found(), (vec![], 0));
    // The same slot twice.
    let crafted = Crafted {
        calls: vec![(SLOTS, MALLOC, JUMP_SLOT), (SLOTS, FREE, JUMP_SLOT)],
        data: vec![(SLOTS, FREE, GLOB_DAT)],
        ..Crafted::default()
    };
    assert_eq!(crafted.found(), (vec![SLOTS], 0));
}

/// Check that tables which are longer than the file, or elsewhere, give no slots.
#[test]
fn impossible_tables_are_ignored() {
    let sound = Crafted {
        calls: vec![(SLOTS, MALLOC, JUMP_SLOT)],
        ..Crafted::default()
    };
    assert_eq!(sound.found().0.len(), 1);
    // The first entry of a kind counts, and these come first.
    for (tag, value) in [
        (5, 1 << 40),
        (6, u64::MAX),
        (23, 1 << 60),
        (20, 17),
        (2, 0),
        (10, 0),
    ] {
        let mut crafted = sound.clone();
        crafted.dynamic = vec![(tag, value)];
        assert_eq!(crafted.found(), (vec![], 0), "{tag}");
    }
    for (tag, value) in [
        (2, u64::MAX),
        (10, u64::MAX),
        (8, u64::MAX),
        (0x6fff_fff9, u64::MAX),
    ] {
        let mut crafted = sound.clone();
        crafted.dynamic = vec![(tag, value)];
        assert_eq!(crafted.found().0, [SLOTS], "{tag}");
    }
}

/// Check that any change of a file is answered, and that the answer passes the checks.
#[test]
fn changed_files_are_answered() {
    let mut code = super::crafted::stubs(&[(&[0xff, 0x25], SLOTS, &[0x66, 0x90])]);
    code.extend(super::crafted::code(&[(&[0xff, 0x15], SLOTS, &[])]));
    let mut crafted = doubtful(code);
    crafted.calls = vec![(SLOTS + 8, FREE, JUMP_SLOT)];
    let sound = crafted.bytes();
    let mut reader = reader_of_tests();
    let mut slots = |bytes: &[u8]| {
        let file = sys::file_in_memory("changed", bytes).unwrap();
        slots_of(&mut reader, "changed", &file, &NAMES).unwrap()
    };
    assert_eq!(slots(&sound).slots.len(), 2);
    let mut numbers = Random(3);
    for _ in 0..2_000 {
        let mut bytes = sound.clone();
        for _ in 0..1 + numbers.below(3) {
            let table = if numbers.below(2) == 0 { 0 } else { 0x1000 };
            bytes[table + numbers.below(0x180)] = numbers.next() as u8;
        }
        if numbers.below(8) == 0 {
            bytes.truncate(numbers.below(bytes.len()));
        }
        assert!(slots(&bytes).slots.len() <= 2);
    }
}

/// Asks a reader that gives one answer.
fn answered(answer: &Slots) -> bool {
    let bytes = encode(answer);
    let mut reader = Reader::in_thread(move || Box::new(move |_, _, _| bytes.clone()));
    let file = sys::file_in_memory("file", &[0; 1 << 16]).unwrap();
    slots_of(&mut reader, "file", &file, &NAMES).is_ok()
}

/// Check that an answer with values that are not possible is refused.
#[test]
fn answers_are_checked() {
    let slot = |name, address| SlotOf { name, address };
    let sound = Slots {
        slots: vec![slot(0, SLOTS), slot(1, SLOTS + 8)],
        writable: vec![Part {
            address: SLOTS,
            offset: SLOTS,
            size: 0x1000,
        }],
        load_bias_vaddr: PAGE,
        ..Slots::default()
    };
    assert!(answered(&sound));
    let with = |slots: Vec<SlotOf>| Slots {
        slots,
        ..sound.clone()
    };
    let left_out = |skipped_names| Slots {
        skipped_names,
        ..sound.clone()
    };
    assert!(answered(&left_out(vec![0, 1])));
    let part = |offset, size| Part {
        address: SLOTS,
        offset,
        size,
    };
    let writable = |part| Slots {
        writable: vec![part],
        ..sound.clone()
    };
    let code = |part| Slots {
        code: Some(part),
        ..sound.clone()
    };
    assert!(answered(&code(part(0, 1 << 16))));
    for wrong in [
        with(vec![slot(2, SLOTS)]),
        left_out(vec![2]),
        left_out(vec![1, 0]),
        left_out(vec![1, 1]),
        with(vec![slot(0, SLOTS + 4)]),
        with(vec![slot(0, SLOTS + 0x1000)]),
        with(vec![slot(0, SLOTS - 8)]),
        with(vec![slot(0, u64::MAX - 7)]),
        with(vec![slot(0, SLOTS), slot(1, SLOTS)]),
        with(vec![slot(0, SLOTS + 8), slot(1, SLOTS)]),
        writable(part(SLOTS, 15)),
        writable(part(SLOTS, 1 << 16)),
        writable(part(u64::MAX, 1 << 10)),
        code(part(1, 1 << 16)),
        Slots {
            writable: sound.writable.repeat(65),
            ..sound.clone()
        },
        Slots {
            load_bias_vaddr: 1,
            ..sound.clone()
        },
        Slots {
            load_bias_offset: 1,
            ..sound.clone()
        },
        Slots {
            load_bias_offset: 1 << 20,
            ..sound.clone()
        },
    ] {
        assert!(!answered(&wrong), "{wrong:?}");
    }
    let with_stubs = |stubs: Vec<(u16, u64, u64)>| Slots {
        code: Some(part(0x3000, 0x1000)),
        stubs: stubs
            .into_iter()
            .map(|(name, slot, jump)| StubOf { name, slot, jump })
            .collect(),
        ..sound.clone()
    };
    // The part has the slots' address, and another offset.
    let (begin, end) = (SLOTS, SLOTS + 0x1000);
    assert!(answered(&with_stubs(vec![
        (1, SLOTS, begin),
        (0, SLOTS, end - 6)
    ])));
    for wrong in [
        (2, SLOTS, begin),
        (0, SLOTS + 4, begin),
        (0, SLOTS + 0x1000, begin),
        (0, SLOTS, begin - 1),
        (0, SLOTS, end - 5),
        (0, SLOTS, u64::MAX),
    ] {
        assert!(!answered(&with_stubs(vec![wrong])), "{wrong:x?}");
    }
    let ordered = |first, second| with_stubs(vec![(0, SLOTS, first), (0, SLOTS, second)]);
    assert!(!answered(&ordered(begin + 8, begin)) && !answered(&ordered(begin, begin)));
    let without_code = Slots {
        code: None,
        ..with_stubs(vec![(0, SLOTS, begin)])
    };
    assert!(!answered(&without_code));
    let stubs = (0..=MAX_STUBS as u64).map(|at| (0, SLOTS, begin + at));
    let mut stubs = with_stubs(stubs.collect());
    assert!(!answered(&stubs));
    stubs.stubs.pop();
    assert!(answered(&stubs));
    let many = (0..=MAX_SLOTS as u64).map(|at| slot(0, SLOTS + 8 * at));
    let mut many = with(many.collect());
    many.writable[0].size = 0xe000;
    assert!(!answered(&many));
    many.slots.pop();
    assert!(answered(&many));
}

/// Check that musl is recognized by its loader, and glibc's version by its banner.
#[test]
fn libraries_are_recognized() {
    let crafted = Crafted {
        loader: "/lib/ld-musl-x86_64.so.1\0",
        ..Crafted::default()
    };
    assert!(crafted.slots().unwrap().is_musl);
    let other = Crafted {
        loader: "/lib64/ld-linux-x86-64.so.2\0",
        ..Crafted::default()
    };
    assert_eq!(other.slots().unwrap().glibc, None);
    assert!(!other.slots().unwrap().is_musl);
    let banner =
        b"xGNU GNU C Library (Debian GLIBC 2.36-9+deb12u10) stable release version 2.36.\nG";
    assert_eq!(libraries::version(banner), Some((2, 36)));
    let later = b"GNU C Library (x) development release version 2.41.9000.\n";
    assert_eq!(libraries::version(later), Some((2, 41)));
    for other in [
        &b"GNU C Library release version x"[..],
        b"GNU C Library ",
        b"",
        b"G",
    ] {
        assert_eq!(libraries::version(other), None);
    }
}
