//! The search through code, compared with a plain one.

use super::super::elf::Elf;
use super::super::references::References;
use super::crafted::{CODE, Crafted, SLOTS, doubtful, to_slot};
use crate::random::Random;

/// Bytes that the search reads at a time.
const CHUNK: usize = 1 << 20;

/// Check that calls and reads are found across the borders of what is read at a time, and at the end of the code.
#[test]
fn borders_hide_no_reference() {
    let size = CHUNK + 600;
    for end in (CHUNK - 3..CHUNK + 9).chain([6, 255, 256, 261, 262, 600, size]) {
        for (opcode, expected) in [
            ([0xff, 0x15], (vec![SLOTS], 0)),
            ([0x8b, 0x05], (vec![], 1)),
        ] {
            let mut code = vec![0x90; size];
            code[end - 6..end - 4].copy_from_slice(&opcode);
            code[end - 4..end].copy_from_slice(&to_slot(SLOTS, end));
            assert_eq!(doubtful(code).found(), expected, "{end}");
        }
    }
}

/// Whether a slot is called and not read, by looking at each place.
fn is_only_called(code: &[u8], slot: u64) -> bool {
    let (mut is_called, mut is_read) = (false, false);
    for place in 0..code.len().saturating_sub(3) {
        for behind in [0, 1, 2, 4] {
            let displacement: [u8; 4] = code[place..place + 4].try_into().unwrap();
            if to_slot(slot, place + 4 + behind) != displacement {
                continue;
            }
            let is_call =
                behind == 0 && place >= 2 && matches!(code[place - 2..place], [0xff, 0x15 | 0x25]);
            let is_operand = place >= 1 && code[place - 1] & 0xc7 == 5;
            is_called |= is_call;
            is_read |= is_operand && !is_call;
        }
    }
    is_called && !is_read
}

/// Check that the search gives the same answer as a plain one for random code.
#[test]
fn searches_agree() {
    let mut numbers = Random(5);
    let mut called = 0;
    for _ in 0..300 {
        let slots: Vec<u64> = (0..4).map(|at| SLOTS + 8 * at).collect();
        let mut code: Vec<u8> = (0..numbers.below(2000))
            .map(|_| numbers.next() as u8)
            .collect();
        for _ in 0..numbers.below(8) {
            let opcode: [&[u8]; 5] = [
                &[0xff, 0x15],
                &[0xff, 0x25],
                &[0xff, 0x15],
                &[0x8b, 0x05],
                &[0x24],
            ];
            let opcode = opcode[numbers.below(5)];
            let behind = [0, 0, 0, 0, 0, 1, 2, 4][numbers.below(8)];
            let place = numbers.below(code.len() + 1);
            let end = place + opcode.len() + 4 + behind;
            let slot = slots[numbers.below(4)];
            let piece = [opcode, &to_slot(slot, end), &vec![0; behind]].concat();
            let stop = code.len().min(end);
            code.splice(place..stop, piece);
        }
        let crafted = Crafted {
            code: code.clone(),
            ..Crafted::default()
        };
        let file = crafted.file();
        let file = Elf::read(&file).unwrap();
        assert!(file.loads.iter().any(|load| load.address == CODE));
        let references = References::find(&file, slots.clone());
        for slot in slots {
            let expected = is_only_called(&code, slot);
            let found = references.of(slot).unwrap().is_only_called();
            assert_eq!(found, expected, "{code:x?}");
            called += u32::from(expected);
        }
    }
    assert!(called > 100, "{called}");
}
