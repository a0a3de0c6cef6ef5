//! Recognizes linkage stubs: the few instructions by which a file's code jumps to the address in a slot.
//!
//! Stage: probes. Runs in a reader. Linkers write stubs in few forms, and align them, so a jump that is no stub is told by its
//! place and by the bytes before it. Must not know what refers to a slot otherwise.

/// `jmp *slot(%rip)`, without the displacement.
pub(super) const JUMP: [u8; 2] = [0xff, 0x25];

/// A prefix of jumps (`bnd`), as linkers wrote it for some years.
const BOUND: [u8; 1] = [0xf2];

/// The instruction at the beginning of functions that may be called by their addresses (`endbr64`).
const LANDING: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// Most bytes of a stub before the displacement.
pub(super) const BEFORE: usize = LANDING.len() + BOUND.len() + JUMP.len();

/// Whether the jump at an address is a stub's. `before` ends with the bytes before its displacement.
pub(super) fn is_stub(jump: u64, before: &[u8]) -> bool {
    let forms: [(&[&[u8]], u64); 4] = [
        (&[&JUMP], 8),
        (&[&BOUND, &JUMP], 8),
        (&[&LANDING, &JUMP], 16),
        (&[&LANDING, &BOUND, &JUMP], 16),
    ];
    forms.iter().any(|(parts, alignment)| {
        let bytes = parts.concat();
        let prefix = (bytes.len() - JUMP.len()) as u64;
        let begin = jump.checked_sub(prefix);
        before.ends_with(&bytes) && begin.is_some_and(|begin| begin.is_multiple_of(*alignment))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each form of a stub is recognized where linkers put it, and nowhere else.
    #[test]
    fn forms_are_recognized() {
        let landing = [LANDING.as_slice(), &JUMP].concat();
        let both = [LANDING.as_slice(), &BOUND, &JUMP].concat();
        let bound = [BOUND.as_slice(), &JUMP].concat();
        for (before, prefix, alignment) in [
            (JUMP.as_slice(), 0, 8),
            (&bound, 1, 8),
            (&landing, 4, 16),
            (&both, 5, 16),
        ] {
            for at in 0x1000..0x1010_u64 {
                let expected = (at - prefix).is_multiple_of(alignment)
                    // The jump alone is a form, too.
                    || at.is_multiple_of(8)
                    || before == both && (at - 1).is_multiple_of(8);
                assert_eq!(is_stub(at, before), expected, "{at:#x} {before:x?}");
            }
        }
        assert!(!is_stub(0x1000, &[0xff, 0x15]), "a call");
        assert!(!is_stub(4, &[0x90, 0xff, 0x25]));
        assert!(!is_stub(0, &landing[..5]));
        assert!(!is_stub(2, &both), "before the first address");
    }
}
