//! A byte of code that leads a linkage stub elsewhere.
//!
//! Stage: probes. Pure. Threads run the stub while it is changed. One byte can't be torn: each thread runs the old or the new
//! displacement. Two can, also if they are written with one instruction and lie within what processors fetch at once. The opcode,
//! where others put breakpoints, is not written. Must not know where stubs lead, nor who writes.

use serde::{Deserialize, Serialize};

use super::slots::JUMP_BYTES;

/// Bytes of a displacement, of which one is written.
pub const BYTES: usize = size_of::<u32>();

/// The opcode of `jmp *word(%rip)`; a displacement follows.
const JUMP: [u8; 2] = [0xff, 0x25];

/// Bytes of a jump.
pub const CODE_BYTES: usize = JUMP.len() + BYTES;

/// A change of one byte of a displacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patch {
    /// The first of the displacement's bytes.
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

    /// The change after which it jumps by another word. `None` if that is too far away, or if more than one byte would change.
    pub fn by(&self, word: u64) -> Option<Patch> {
        let end = self.address.checked_add(JUMP_BYTES)?;
        let displacement = i32::try_from(word.wrapping_sub(end).cast_signed()).ok()?;
        let patch = Patch {
            address: self.address.checked_add(JUMP.len() as u64)?,
            old: u32::from_ne_bytes(*self.code.last_chunk()?),
            new: displacement.cast_unsigned(),
        };
        patch.is_sound().then_some(patch)
    }

    /// The same jump after a change of its code. `None` if the change is not one of its code as it is.
    pub fn after(&self, patch: &Patch) -> Option<Self> {
        let mut code = self.code;
        let bytes = code.last_chunk_mut()?;
        let is_of = self.address.checked_add(JUMP.len() as u64) == Some(patch.address)
            && *bytes == patch.old.to_ne_bytes();
        *bytes = patch.new.to_ne_bytes();
        is_of.then_some(Self { code, ..*self })
    }
}

impl Patch {
    /// Whether one byte changes.
    pub fn is_sound(&self) -> bool {
        self.write().is_some()
    }

    /// The change back.
    pub fn undone(&self) -> Self {
        Self {
            address: self.address,
            old: self.new,
            new: self.old,
        }
    }

    /// The byte that must be written, and where. `None` if it is not one.
    pub(super) fn write(&self) -> Option<(u64, u8)> {
        let pairs = self
            .old
            .to_ne_bytes()
            .into_iter()
            .zip(self.new.to_ne_bytes());
        let mut changed = (self.address..)
            .zip(pairs)
            .filter(|(_, (old, new))| old != new);
        let (address, (_, new)) = changed.next()?;
        changed.next().is_none().then_some((address, new))
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

    /// Check that a jump is changed wherever it is, by one byte, if the word has moved by a distance that leaves the others.
    #[test]
    fn one_byte_is_changed() {
        let mut refused = 0;
        for at in (1 << 40)..(1 << 40) + 16 {
            for distance in [1_i64 << 24, 5 << 16, 1 << 12, -1 << 24, -1 << 16] {
                for displacement in [0x2fd0, 0x00ff_2fd0, 0x018d_dd4a, -0x7654_3210] {
                    let jump = jump(at, displacement);
                    let slot = jump.word().unwrap();
                    assert_eq!(slot, at.wrapping_add_signed(6 + i64::from(displacement)));
                    let word = slot.wrapping_add_signed(distance);
                    let (old, new) = (displacement, i64::from(displacement) + distance);
                    let changed = (i64::from(old) ^ new).to_le_bytes();
                    let changed = changed[..4].iter().filter(|it| **it != 0).count();
                    let Some(patch) = jump.by(word) else {
                        assert!(changed > 1 || i32::try_from(new).is_err());
                        refused += 1;
                        continue;
                    };
                    assert_eq!((changed, patch.address), (1, at + 2));
                    let (address, byte) = patch.write().unwrap();
                    let within = (address - at) as usize;
                    let mut code = jump.code;
                    code[within] = byte;
                    let after = jump.after(&patch).unwrap();
                    assert!(after.code == code && (2..6).contains(&within));
                    assert_eq!(after.word(), Some(word));
                    assert_eq!(after.after(&patch.undone()), Some(jump));
                    assert_eq!(after.after(&patch), None);
                }
            }
        }
        assert!((1..16 * 10).contains(&refused), "{refused}");
    }

    /// Check that a word that is too far away, or the same, is refused, and code that is no such jump.
    #[test]
    fn impossible_changes_are_refused() {
        let jump = jump(1 << 40, 0x2fd0);
        let slot = jump.word().unwrap();
        assert_eq!(jump.by(slot), None);
        assert!(jump.by(slot - (0x7f << 24)).is_some());
        assert_eq!(jump.by(slot + (0x0101 << 16)), None);
        assert_eq!(jump.by(slot - (0x81 << 24)), None);
        assert_eq!(jump.by(slot + (1 << 31)), None);
        let mut call = jump;
        call.code[1] = 0x15;
        assert_eq!(call.word(), None);
    }
}
