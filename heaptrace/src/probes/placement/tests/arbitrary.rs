//! Arbitrary bytes: no panic, and only correct locations.

use super::super::Reason;
use super::*;
use crate::random::Random;

/// Pieces of functions, mostly whole instructions: common prologues and misleading code.
const PIECES: &[&[u8]] = &[
    &[0x55],
    &[0x41, 0x54],
    &[0x90],
    &[0xf3, 0x0f, 0x1e, 0xfa],
    &[0x48, 0x89, 0xfb],
    &[0x48, 0x89, 0xfe],
    &[0x49, 0x89, 0xf8],
    &[0x4c, 0x89, 0xc7],
    &[0x89, 0xff],
    &[0x31, 0xc0],
    &[0x48, 0x97],
    &[0x48, 0x85, 0xff],
    &[0x48, 0x85, 0xf6],
    &[0x48, 0x83, 0xff, 0],
    &[0x48, 0x81, 0xff, 0, 4, 0, 0],
    &[0x48, 0x83, 0xec, 8],
    &[0x48, 0x89, 0x7c, 0x24, 0xf8],
    &[0x48, 0x8b, 0x05, 0, 1, 0, 0],
    &[0x48, 0x0f, 0x44, 0xf8],
    &[0x48, 0xf7, 0xe6],
    &[0xf3, 0xa4],
    &[0x5d],
    &[0xc3],
    &[0xff, 0xe0],
];

fn function(numbers: &mut Random) -> Vec<u8> {
    let mut code = Vec::new();
    for _ in 0..1 + numbers.below(12) {
        match numbers.below(8) {
            // A short branch to a near target, with or without a condition.
            0 | 1 => {
                let opcode = [0x74, 0x74, 0x75, 0x77, 0xeb][numbers.below(5)];
                code.extend([opcode, (numbers.below(32) as u8).wrapping_sub(16)]);
            }
            2 if numbers.below(4) == 0 => code.push(numbers.next() as u8),
            _ => code.extend(PIECES[numbers.below(PIECES.len())]),
        }
    }
    code
}

/// Check that every placement in random code is correct by a second implementation of the rules, and that
/// locations after the entry, and after a check for NULL, do occur.
#[test]
fn every_placement_is_correct() {
    let programs = [
        "malloc_entry",
        "calloc_entry",
        "realloc_entry",
        "free_entry",
        "heap_free_entry",
        "aligned_entry",
        "posix_memalign_entry",
    ];
    let mut numbers = Random(0x9e37_79b9_7f4a_7c15);
    let (mut later, mut past_null_check) = (0, 0);
    for round in 0..200_000 {
        let code = function(&mut numbers);
        let program = programs[round % programs.len()];
        let placement = place_whole(&code, program);
        if placement.offset > 0 {
            later += 1;
            let at = placement.offset as usize;
            past_null_check += usize::from(code[..at].contains(&0x74));
        }
    }
    assert!(later > 2_000, "{later}");
    assert!(past_null_check > 50, "{past_null_check}");
}

/// Check that random bytes cause no panic, and that a location after the entry is always an emulated
/// instruction.
#[test]
fn noise_is_survived() {
    let mut numbers = Random(1);
    for _ in 0..100_000 {
        let length = numbers.below(64);
        let code: Vec<u8> = (0..length).map(|_| numbers.next() as u8).collect();
        let size = [None, Some(0), Some(length as u64), Some(u64::MAX)][numbers.below(4)];
        let placement = place(&code, size, Needs::ALL);
        if placement.offset > 0 {
            assert!(matches!(placement.reason, Reason::Emulated(_)));
        }
    }
}
