//! Linkage stubs of slots that are also read.

use super::super::answer::MAX_STUBS;
use super::super::{Slots, StubOf};
use super::crafted::{
    CODE, Crafted, FREE, GLOB_DAT, JUMP_SLOT, MALLOC, SLOTS, code, doubtful, stubs, to_slot,
};
use crate::proc::maps;

/// `mov slot(%rip), %rax`, without the displacement.
const READ: &[u8] = &[0x48, 0x8b, 0x05];

/// Stubs as linkers write them, with the bytes behind the displacement.
const FORMS: [(&[u8], &[u8]); 4] = [
    (&[0xff, 0x25], &[0x66, 0x90]),
    (&[0xf2, 0xff, 0x25], &[0x90]),
    (
        &[0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25],
        &[0x66, 0x0f, 0x1f, 0x44, 0, 0],
    ),
    (
        &[0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25],
        &[0x0f, 0x1f, 0x44, 0, 0],
    ),
];

fn stub(slot: u64, jump: u64) -> StubOf {
    StubOf {
        name: 0,
        slot,
        jump,
    }
}

/// Check that each form of a stub is found for a slot that is also read, and that the slot itself is left out.
#[test]
fn stubs_of_read_slots_are_found() {
    for (before, behind) in FORMS {
        let found = doubtful(stubs(&[(before, SLOTS, behind), (READ, SLOTS, &[])]));
        let found = found.slots().unwrap();
        let jump = CODE + 16 + before.len() as u64 - 2;
        assert_eq!(found.stubs, [stub(SLOTS, jump)], "{before:x?}");
        assert_eq!((found.slots.len(), found.skipped), (0, 1));
        assert_eq!(
            found.skipped_names, [0_u16; 0],
            "all calls pass through the stub"
        );
        // A slot that is only called is itself changed.
        let called = doubtful(stubs(&[(before, SLOTS, behind)])).slots().unwrap();
        assert_eq!((called.slots.len(), called.stubs.len()), (1, 0));
    }
}

/// Check that other calls by the slot are no stubs, and that their function is named because they stay slow.
#[test]
fn other_calls_are_named() {
    let read = (READ, SLOTS, &[][..]);
    let jump = (FORMS[0].0, SLOTS, FORMS[0].1);
    for other in [&[0xff, 0x15][..], &[0x41, 0xff, 0x15], &[0x90, 0xff, 0x25]] {
        let call = (other, SLOTS, &[][..]);
        let found = doubtful(stubs(&[call, read])).slots().unwrap();
        assert_eq!((found.stubs.len(), &*found.skipped_names), (0, &[0][..]));
        let found = doubtful(stubs(&[call, jump, read])).slots().unwrap();
        let expected = [stub(SLOTS, CODE + 32)];
        assert_eq!(
            (&*found.stubs, &*found.skipped_names),
            (&expected[..], &[0][..])
        );
    }
    // Not aligned.
    let found = doubtful(code(&[(FORMS[0].0, SLOTS, &[]), read]))
        .slots()
        .unwrap();
    assert_eq!((found.stubs.len(), &*found.skipped_names), (0, &[0][..]));
    // Never called.
    let found = doubtful(stubs(&[read])).slots().unwrap();
    assert_eq!((found.stubs.len(), found.skipped), (0, 1));
    assert_eq!(found.skipped_names, [0_u16; 0]);
}

/// Check that each stub has the slot and the function that it jumps by, and that a slot of the linkage table has none.
#[test]
fn stubs_belong_to_their_slots() {
    let crafted = Crafted {
        data: vec![(SLOTS + 8, FREE, GLOB_DAT), (SLOTS + 16, MALLOC, GLOB_DAT)],
        calls: vec![(SLOTS, MALLOC, JUMP_SLOT)],
        code: stubs(&[
            (FORMS[0].0, SLOTS + 16, FORMS[0].1),
            (FORMS[2].0, SLOTS + 8, FORMS[2].1),
            (FORMS[0].0, SLOTS, FORMS[0].1),
            (READ, SLOTS + 8, &[]),
            (READ, SLOTS + 16, &[]),
            (READ, SLOTS, &[]),
        ]),
        ..Crafted::default()
    };
    let found = crafted.slots().unwrap();
    let of_free = StubOf {
        name: 1,
        ..stub(SLOTS + 8, CODE + 36)
    };
    assert_eq!(found.stubs, [stub(SLOTS + 16, CODE + 16), of_free]);
    assert_eq!(found.slots.len(), 1);
}

/// Check that a stub is found across the border of what is read at a time, and that there are never too many.
#[test]
fn borders_hide_no_stub() {
    let chunk: usize = 1 << 20;
    let (before, _) = FORMS[3];
    let mut code = vec![0x90; chunk + 64];
    for at in [chunk - 16, chunk, chunk + 16, chunk - 8, 8] {
        // At the last two, only a jump with its prefix is a stub.
        let before = if at % 16 == 0 { before } else { FORMS[1].0 };
        code.fill(0x90);
        let end = at + before.len() + 4;
        code[at..end - 4].copy_from_slice(before);
        code[end - 4..end].copy_from_slice(&to_slot(SLOTS, end));
        code[32..35].copy_from_slice(READ);
        code[35..39].copy_from_slice(&to_slot(SLOTS, 39));
        let found = doubtful(code.clone()).slots().unwrap();
        let jump = CODE + (end - 6) as u64;
        assert_eq!(found.stubs, [stub(SLOTS, jump)], "{at:#x}");
    }
    let read = (READ, SLOTS, &[][..]);
    let many = vec![(FORMS[0].0, SLOTS, FORMS[0].1); 40];
    let found = doubtful(stubs(&[many.as_slice(), &[read]].concat()))
        .slots()
        .unwrap();
    assert_eq!((found.stubs.len(), &*found.skipped_names), (16, &[0][..]));
    let all = (0..8).map(|at| (SLOTS + 8 * at, MALLOC, GLOB_DAT));
    let pieces = (0..8).flat_map(|at| {
        let slot = SLOTS + 8 * at;
        let mut pieces = vec![(FORMS[0].0, slot, FORMS[0].1); 16];
        pieces.push((READ, slot, &[]));
        pieces
    });
    let crafted = Crafted {
        data: all.collect(),
        code: stubs(&pieces.collect::<Vec<_>>()),
        ..Crafted::default()
    };
    let found = crafted.slots().unwrap();
    assert_eq!(
        (found.stubs.len(), &*found.skipped_names),
        (MAX_STUBS, &[0][..])
    );
}

/// Check that stubs are found in a process only where its mappings have the code, private and unwritten, and the slots.
#[test]
fn stubs_lie_in_mappings() {
    let crafted = doubtful(stubs(&[
        (FORMS[2].0, SLOTS, FORMS[2].1),
        (READ, SLOTS, &[]),
    ]));
    let found: Slots = crafted.slots().unwrap();
    let jump = CODE + 20;
    let text = "10000000-10002000 r--p 00000000 08:01 5 /lib/a\n\
                10002000-10003000 rw-p 00002000 08:01 5 /lib/a\n\
                10003000-10004000 r-xp 00003000 08:01 5 /lib/a\n";
    let at = |from: &str, to: &str| {
        assert!(text.contains(from));
        let mappings: Vec<_> = maps::parse(&text.replace(from, to)).collect();
        found.stubs_in_process(&mappings)
    };
    let [one] = at("", "")[..] else {
        panic!("no stub")
    };
    assert_eq!(one.offset, jump);
    assert_eq!(one.stub, stub(SLOTS + 0x1000_0000, jump + 0x1000_0000));
    for (from, to) in [
        ("r-xp", "r-xs"),
        ("r-xp", "rwxp"),
        ("00003000 08", "00004000 08"),
        ("rw-p 00002000", "rw-p 00001000"),
        ("10003000-10004000", "10003000-10003014"),
    ] {
        assert_eq!(at(from, to), [], "{from} to {to}");
    }
}
