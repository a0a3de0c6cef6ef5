//! Four bytes of code that lead a linkage stub elsewhere.
//!
//! Stage: probes. Pure. Threads run the stub while it is changed. So the bytes that change lie within eight bytes that processors
//! fetch at once, each processor sees the old or the new displacement, and the opcode, where others put breakpoints, is not
//! written. If only one byte changes, there is nothing to be torn at all. Must not know where stubs lead, nor who writes.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::slots::JUMP_BYTES;

/// Bytes that are written.
pub const BYTES: usize = size_of::<u32>();

/// The opcode of `jmp *word(%rip)`; a displacement follows.
const JUMP: [u8; 2] = [0xff, 0x25];

/// Bytes of code, from the begin of a jump, among which are all that may be written.
pub const CODE_BYTES: usize = 9;

/// The unit that processors fetch at once.
const FETCHED: u64 = 8;

/// A change of four bytes of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patch {
    /// The first of the bytes.
    pub address: u64,
    /// What they must be.
    pub old: u32,
    /// What they become.
    pub new: u32,
}

/// The jump of a stub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    /// Its address.
    pub address: u64,
    /// The code there.
    pub code: [u8; CODE_BYTES],
}

impl Jump {
    /// The address of the word by which it jumps. `None` if the code is no such jump.
    pub fn word(&self) -> Option<u64> {
        let (opcode, behind) = self.code.split_first_chunk()?;
        let displacement = i32::from_le_bytes(*behind.first_chunk()?);
        let end = self.address.checked_add(JUMP_BYTES)?;
        let word = end.checked_add_signed(displacement.into())?;
        (*opcode == JUMP).then_some(word)
    }

    /// The change after which it jumps by another word. `None` if that is too far away, or can't be written at once.
    pub fn by(&self, word: u64) -> Option<Patch> {
        let end = self.address.checked_add(JUMP_BYTES)?;
        let displacement = i32::try_from(word.wrapping_sub(end).cast_signed()).ok()?;
        let mut code = self.code;
        code.get_mut(JUMP.len()..JUMP.len() + BYTES)?
            .copy_from_slice(&displacement.to_le_bytes());
        let place = self.place();
        let is_outside = |at: &usize| !place.contains(at) && self.code.get(*at) != code.get(*at);
        if (0..CODE_BYTES).any(|at| is_outside(&at)) {
            return None;
        }
        let of = |code: &[u8]| {
            Some(u32::from_ne_bytes(
                code.get(place.clone())?.try_into().ok()?,
            ))
        };
        let (old, new) = (of(&self.code)?, of(&code)?);
        let address = self.address.checked_add(place.start as u64)?;
        (old != new).then_some(Patch { address, old, new })
    }

    /// The same jump after a change of its code. `None` if the change is not one of its code as it is.
    pub fn after(&self, patch: &Patch) -> Option<Self> {
        let place = self.place();
        let mut code = self.code;
        let bytes = code.get_mut(place.clone())?;
        let is_of = self.address.checked_add(place.start as u64) == Some(patch.address)
            && *bytes == patch.old.to_ne_bytes();
        bytes.copy_from_slice(&patch.new.to_ne_bytes());
        is_of.then_some(Self { code, ..*self })
    }

    /// Where in the code the bytes are that may be written: the displacement, or its upper part and what follows it.
    fn place(&self) -> Range<usize> {
        let start = JUMP.len();
        let within = self.address.wrapping_add(start as u64) % FETCHED;
        let start = match (FETCHED - within) as usize {
            room if room >= BYTES => start,
            room => start + room,
        };
        start..start + BYTES
    }
}

impl Patch {
    /// Whether the bytes lie within what processors fetch at once.
    pub fn is_sound(&self) -> bool {
        self.address % FETCHED <= FETCHED - BYTES as u64
    }

    /// The change back.
    pub fn undone(&self) -> Self {
        Self {
            address: self.address,
            old: self.new,
            new: self.old,
        }
    }

    /// What must be written, and where: a single byte if only one changes.
    pub(super) fn writes(&self) -> (u64, Vec<u8>) {
        let (old, new) = (self.old.to_ne_bytes(), self.new.to_ne_bytes());
        let mut changed = (0..BYTES).filter(|at| old.get(*at) != new.get(*at));
        match (changed.next(), changed.next()) {
            (Some(at), None) => {
                let bytes = new.into_iter().skip(at).take(1);
                (self.address + at as u64, bytes.collect())
            }
            _ => (self.address, new.to_vec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A jump at an address by a word at a distance.
    fn jump(address: u64, displacement: i32) -> Jump {
        let mut code = [0x90; CODE_BYTES];
        code[..2].copy_from_slice(&JUMP);
        code[2..6].copy_from_slice(&displacement.to_le_bytes());
        Jump { address, code }
    }

    /// Check that a jump is changed wherever it is, within eight aligned bytes and without its opcode, if the word has moved by
    /// a distance that leaves the rest of the displacement.
    #[test]
    fn changes_are_within_eight_bytes() {
        let mut by_one_byte = 0;
        for at in (1 << 40)..(1 << 40) + 16 {
            for distance in [1 << 24, 1 << 16, 5 << 16, 1 << 12] {
                for displacement in [0x2fd0, 0x00ff_2fd0, 0x018d_dd4a, -0x7654_3210] {
                    let jump = jump(at, displacement);
                    let slot = jump.word().unwrap();
                    assert_eq!(slot, at.wrapping_add_signed(6 + i64::from(displacement)));
                    let Some(patch) = jump.by(slot.wrapping_add(distance)) else {
                        // The displacement crosses the border of eight bytes, and bytes on both sides would change.
                        assert!(distance < 1 << 24 && (3..6).contains(&(at % 8)), "{at:#x}");
                        continue;
                    };
                    assert!(patch.is_sound() && patch.address >= at + 2);
                    let (first, bytes) = patch.writes();
                    assert!(
                        first >= patch.address && first / 8 == (first + bytes.len() as u64 - 1) / 8
                    );
                    by_one_byte += u32::from(bytes.len() == 1);
                    assert!(distance < 1 << 24 || bytes.len() == 1);
                    let after = jump.after(&patch).unwrap();
                    assert_eq!(after.word(), Some(slot.wrapping_add(distance)));
                    assert_eq!(after.after(&patch.undone()), Some(jump));
                    assert_eq!(after.after(&patch), None);
                }
            }
        }
        assert!(by_one_byte >= 3 * 16);
    }

    /// Check that a word that is too far away, or the same, is refused, and code that is no such jump.
    #[test]
    fn impossible_changes_are_refused() {
        let jump = jump(1 << 40, 0x2fd0);
        let slot = jump.word().unwrap();
        assert_eq!(jump.by(slot), None);
        assert!(jump.by(slot - (0x7f << 24)).is_some());
        assert_eq!(jump.by(slot - (0x81 << 24)), None);
        assert_eq!(jump.by(slot + (1 << 31)), None);
        let mut call = jump;
        call.code[1] = 0x15;
        assert_eq!(call.word(), None);
    }
}
