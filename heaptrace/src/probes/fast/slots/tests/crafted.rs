//! Files made here: programs of a few instructions, with tables as linkers write them.

use std::fs::File;

use super::super::{SlotOf, Slots, slots_of};
use crate::jobs::reader_of_tests;
use crate::reader::Unreadable;
use crate::sys;

/// The functions whose slots are asked for.
pub(super) const NAMES: [&str; 2] = ["malloc", "free"];

/// Where the tables, the slots and the code of a file are loaded; also their offsets in it.
pub(super) const TABLES: u64 = 0x1000;
pub(super) const SLOTS: u64 = 0x2000;
pub(super) const CODE: u64 = 0x3000;

/// Symbols of a file, by their indexes.
const SYMBOLS: [&str; 5] = ["", "malloc", "free", "mallocx", "xfree"];

pub(super) const MALLOC: u64 = 1;
pub(super) const FREE: u64 = 2;
pub(super) const MALLOCX: u64 = 3;

pub(super) const ABSOLUTE: u64 = 1;
pub(super) const COPY: u64 = 5;
pub(super) const GLOB_DAT: u64 = 6;
pub(super) const JUMP_SLOT: u64 = 7;

/// A file to make.
#[derive(Clone, Debug, Default)]
pub(super) struct Crafted {
    /// Whether it is loaded at the addresses in it.
    pub(super) is_fixed: bool,
    /// Relocations of data: slot address, symbol, kind.
    pub(super) data: Vec<(u64, u64, u64)>,
    /// Relocations of the linkage table.
    pub(super) calls: Vec<(u64, u64, u64)>,
    pub(super) code: Vec<u8>,
    /// More entries of the dynamic section.
    pub(super) dynamic: Vec<(u64, u64)>,
    /// Path of the dynamic loader.
    pub(super) loader: &'static str,
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|it| it.to_le_bytes()).collect()
}

fn segment(kind: u32, flags: u32, address: u64, size: u64) -> Vec<u8> {
    let mut bytes = [kind.to_le_bytes(), flags.to_le_bytes()].concat();
    bytes.extend(words(&[address, address, address, size, size, 1]));
    bytes
}

impl Crafted {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut strings = Vec::new();
        let mut symbols = Vec::new();
        for name in SYMBOLS {
            symbols.extend(words(&[strings.len() as u64, 0, 0]));
            strings.extend(name.bytes());
            strings.push(0);
        }
        let relocations = |all: &[(u64, u64, u64)]| -> Vec<u8> {
            let entry = |it: &(u64, u64, u64)| words(&[it.0, it.1 << 32 | it.2, 0]);
            all.iter().flat_map(entry).collect()
        };
        let (data, calls) = (relocations(&self.data), relocations(&self.calls));
        let mut tables = Vec::new();
        let mut put = |bytes: &[u8]| {
            let at = TABLES + tables.len() as u64;
            tables.extend(bytes);
            tables.resize(tables.len().next_multiple_of(8), 0);
            at
        };
        let (names, symbols) = (put(&strings), put(&symbols));
        let (data_at, calls_at) = (put(&data), put(&calls));
        let loader = put(self.loader.as_bytes());
        let mut dynamic = self.dynamic.clone();
        dynamic.extend([
            (5, names),
            (10, strings.len() as u64),
            (6, symbols),
            (7, data_at),
            (8, data.len() as u64),
            (20, 7),
            (23, calls_at),
            (2, calls.len() as u64),
            (0, 0),
        ]);
        let dynamic: Vec<u64> = dynamic.into_iter().flat_map(|(a, b)| [a, b]).collect();
        let dynamic = words(&dynamic);
        let dynamic_at = put(&dynamic);
        assert!(tables.len() < 0x1000);
        let mut segments = segment(1, 4, 0, SLOTS);
        segments.extend(segment(1, 6, SLOTS, CODE - SLOTS));
        segments.extend(segment(1, 5, CODE, self.code.len() as u64));
        segments.extend(segment(2, 6, dynamic_at, dynamic.len() as u64));
        segments.extend(segment(3, 4, loader, self.loader.len() as u64));
        let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        bytes.extend([if self.is_fixed { 2 } else { 3 }, 0, 62, 0, 1, 0, 0, 0]);
        bytes.extend(words(&[0, 64, 0]));
        for half in [0u16, 0, 64, 56, 5, 0, 0, 0] {
            bytes.extend(half.to_le_bytes());
        }
        bytes.extend(segments);
        bytes.resize(TABLES as usize, 0);
        bytes.extend(tables);
        bytes.resize(CODE as usize, 0);
        bytes.extend(&self.code);
        bytes
    }

    pub(super) fn file(&self) -> File {
        sys::file_in_memory("crafted", &self.bytes()).unwrap()
    }

    pub(super) fn slots(&self) -> Result<Slots, Unreadable> {
        slots_of(&mut reader_of_tests(), "crafted", &self.file(), &NAMES)
    }

    /// The addresses of the slots, and how many are left out.
    #[track_caller]
    pub(super) fn found(&self) -> (Vec<u64>, u32) {
        let found = self.slots().unwrap();
        (
            found.slots.iter().map(|it| it.address).collect(),
            found.skipped,
        )
    }
}

/// A displacement from the end of an instruction to a slot. `end`: offset in the code.
pub(super) fn to_slot(slot: u64, end: usize) -> [u8; 4] {
    (slot.wrapping_sub(CODE + end as u64) as i32).to_le_bytes()
}

/// Code of pieces: bytes before a displacement, the slot, and the bytes behind it.
pub(super) fn code(pieces: &[(&[u8], u64, &[u8])]) -> Vec<u8> {
    let mut code = vec![0x90; 3];
    for (before, slot, behind) in pieces {
        let end = code.len() + before.len() + 4 + behind.len();
        code.extend(*before);
        code.extend(to_slot(*slot, end));
        code.extend(*behind);
    }
    code.extend([0xc3; 2]);
    code
}

/// A file with one doubtful slot of `malloc`, and this code.
pub(super) fn doubtful(code: Vec<u8>) -> Crafted {
    Crafted {
        data: vec![(SLOTS, MALLOC, GLOB_DAT)],
        code,
        ..Crafted::default()
    }
}

/// Code with stubs: bytes before the displacement, the slot, and the bytes behind it; each begins at a multiple of 16.
pub(super) fn stubs(pieces: &[(&[u8], u64, &[u8])]) -> Vec<u8> {
    let mut code = vec![0xcc; 16];
    for (before, slot, behind) in pieces {
        code.extend(*before);
        let end = code.len() + 4;
        code.extend(to_slot(*slot, end));
        code.extend(*behind);
        code.resize(code.len().next_multiple_of(16), 0x90);
    }
    code
}

/// Check that slots of the linkage table are found by their functions' names, and no others.
#[test]
fn slots_of_the_linkage_table_are_found() {
    let crafted = Crafted {
        calls: vec![
            (SLOTS + 24, FREE, JUMP_SLOT),
            (SLOTS + 8, MALLOC, JUMP_SLOT),
            (SLOTS + 16, MALLOCX, JUMP_SLOT),
            (SLOTS + 40, 4, JUMP_SLOT),
            // A pointer in data, a copied variable, a symbol without a name, and one that is not there.
            (SLOTS + 48, MALLOC, ABSOLUTE),
            (SLOTS + 56, MALLOC, COPY),
            (SLOTS + 64, 0, JUMP_SLOT),
            (SLOTS + 72, 5, JUMP_SLOT),
            (SLOTS + 80, u64::from(u32::MAX), JUMP_SLOT),
        ],
        ..Crafted::default()
    };
    let slot = |name, address| SlotOf { name, address };
    let expected = [slot(0, SLOTS + 8), slot(1, SLOTS + 24)];
    let found = crafted.slots().unwrap();
    assert_eq!((&*found.slots, found.skipped), (&expected[..], 0));
    assert_eq!((found.load_bias_vaddr, found.load_bias_offset), (0, 0));
    // The same in the other table, behind relocations without symbols.
    let mut data = crafted.calls.clone();
    data.splice(0..0, [(0, MALLOC, GLOB_DAT), (8, 0, 8)]);
    let other = Crafted {
        data,
        calls: Vec::new(),
        dynamic: vec![(0x6fff_fff9, 2)],
        ..crafted
    };
    assert_eq!(other.slots().unwrap().slots, expected);
}

/// Check that a slot that is only called is found, whatever the prefixes of the calls.
#[test]
fn called_slots_are_found() {
    let calls: [&[u8]; 7] = [
        &[0xff, 0x15],
        &[0xff, 0x25],
        &[0x67, 0xff, 0x15],
        &[0xf2, 0xff, 0x25],
        &[0x3e, 0xff, 0x15],
        &[0x48, 0xff, 0x25],
        &[0x41, 0xff, 0x15],
    ];
    for call in calls {
        let crafted = doubtful(code(&[(call, SLOTS, &[])]));
        assert_eq!(crafted.found(), (vec![SLOTS], 0), "{call:x?}");
    }
    // Bytes that have the displacement of a slot, but are none: mov [rsp + …], rax; a jump to the slot.
    for other in [&[0x48, 0x89, 0x84, 0x24][..], &[0xe9], &[]] {
        for behind in [&[][..], &[0], &[0; 4]] {
            let pieces: [(&[u8], u64, &[u8]); 2] =
                [(&[0xff, 0x15], SLOTS, &[]), (other, SLOTS, behind)];
            assert_eq!(doubtful(code(&pieces)).found(), (vec![SLOTS], 0));
        }
    }
    // Several calls, with another slot between them.
    let pieces = calls.map(|call| [(call, SLOTS, &[][..]), (call, SLOTS + 8, &[])]);
    assert_eq!(doubtful(code(&pieces.concat())).found(), (vec![SLOTS], 0));
}

/// Check that a slot that is read, or never called, is left out and counted.
#[test]
fn read_slots_are_left_out() {
    assert_eq!(doubtful(code(&[])).found(), (vec![], 1));
    assert_eq!(doubtful(Vec::new()).found(), (vec![], 1));
    let call: (&[u8], u64, &[u8]) = (&[0xff, 0x15], SLOTS, &[]);
    let reads: [(&[u8], &[u8]); 10] = [
        // mov rax, [slot]; lea; cmp; push.
        (&[0x48, 0x8b, 0x05], &[]),
        (&[0x48, 0x8d, 0x05], &[]),
        (&[0x48, 0x3b, 0x05], &[]),
        (&[0xff, 0x35], &[]),
        // With an immediate of one, two and four bytes.
        (&[0x48, 0x83, 0x3d], &[0]),
        (&[0x66, 0xc7, 0x05], &[1, 2]),
        (&[0x48, 0x81, 0x3d], &[1, 2, 3, 4]),
        (&[0x48, 0xc7, 0x05], &[0xff, 0x15, 0, 0]),
        // Something that only begins like a call.
        (&[0xff, 0x15], &[0]),
        // A far call.
        (&[0xff, 0x1d], &[]),
    ];
    for (before, behind) in reads {
        let read = (before, SLOTS, behind);
        for pieces in [&[read][..], &[call, read], &[read, call]] {
            let found = doubtful(code(pieces)).found();
            assert_eq!(found, (vec![], 1), "{before:x?} {behind:x?}");
        }
    }
}

/// Check that a slot of the linkage table is found even if it is read, and that each slot is judged by itself.
#[test]
fn slots_are_judged_one_by_one() {
    let crafted = Crafted {
        data: vec![
            (SLOTS + 8, MALLOC, GLOB_DAT),
            (SLOTS + 16, FREE, GLOB_DAT),
            (SLOTS + 24, FREE, GLOB_DAT),
        ],
        calls: vec![(SLOTS, MALLOC, JUMP_SLOT)],
        code: code(&[
            (&[0x48, 0x8b, 0x05], SLOTS, &[]),
            (&[0xff, 0x15], SLOTS + 8, &[]),
            (&[0xff, 0x15], SLOTS + 16, &[]),
            (&[0x48, 0x8b, 0x05], SLOTS + 16, &[]),
            (&[0xff, 0x25], SLOTS + 24, &[]),
        ]),
        ..Crafted::default()
    };
    assert_eq!(crafted.found(), (vec![SLOTS, SLOTS + 8, SLOTS + 24], 1));
    assert_eq!(crafted.slots().unwrap().skipped_names, [1]);
}

/// Check that the address of a slot in code leaves the slot out in a program that is loaded where it says, and only there.
#[test]
fn addresses_in_code_count_in_fixed_programs() {
    let mut bytes = code(&[(&[0xff, 0x15], SLOTS, &[])]);
    let mut crafted = doubtful(bytes.clone());
    crafted.is_fixed = true;
    assert_eq!(crafted.found(), (vec![SLOTS], 0));
    // mov rax, [SLOTS], without the instruction pointer.
    bytes.extend([0x48, 0x8b, 0x04, 0x25]);
    bytes.extend((SLOTS as u32).to_le_bytes());
    crafted.code = bytes;
    assert_eq!(crafted.found(), (vec![], 1));
    crafted.is_fixed = false;
    assert_eq!(crafted.found(), (vec![SLOTS], 0));
    // In a table beside the code, the address is no code.
    crafted.is_fixed = true;
    let end = CODE + crafted.code.len() as u64;
    crafted.dynamic = vec![(23, end - 4), (2, 4)];
    assert_eq!(crafted.found(), (vec![SLOTS], 0));
}
