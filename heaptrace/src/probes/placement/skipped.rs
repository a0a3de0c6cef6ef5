//! The first instructions of a function as plain values, for copies at other addresses.
//!
//! Stage: probes. A reader's answer is checked before it becomes one of these. Must not know instructions.

use serde::{Deserialize, Serialize};

/// Most bytes of a copy.
pub const MAX_BYTES: usize = 96;

/// Most bytes of a function that are read for a copy: those of the copy, and the longest instruction.
pub(super) const MAX_READ: u64 = MAX_BYTES as u64 + 16;

/// Farthest target from the entry that a displacement of four bytes in the copied instructions can have.
const MAX_DISTANCE: u64 = (1 << 31) + MAX_READ;

/// Bytes of a displacement.
pub(super) const WIDTH: usize = 4;

/// The instructions of a function up to and with the probed one, for a copy at any address within 2 GiB of their targets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The instructions. The displacements that `fixes` names have no meaning.
    pub bytes: Vec<u8>,
    /// The displacements that depend on the copy's address, in the order of their places.
    pub fixes: Vec<Fix>,
    /// Offset in the function of the instruction behind the probed one, where a copy continues.
    pub resume: u64,
}

/// A displacement of four bytes that depends on the copy's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fix {
    /// Its place in the copy.
    pub at: u8,
    /// End of its instruction in the copy. The processor adds the displacement to the address of this end.
    pub end: u8,
    /// The target, relative to the function's entry.
    pub target: i64,
}

impl Skipped {
    /// Whether all values are possible for a function that is probed at an offset, and whose file continues for so many
    /// bytes behind its entry.
    pub fn is_sound(&self, probed: u64, behind: u64) -> bool {
        let mut free = 0;
        let fixes_fit = self.fixes.iter().all(|fix| {
            let (at, end) = (usize::from(fix.at), usize::from(fix.end));
            let fits = at >= free
                && at + WIDTH <= end
                && end <= self.bytes.len()
                && fix.target.unsigned_abs() <= MAX_DISTANCE;
            free = end;
            fits
        });
        let first = probed.saturating_add(1);
        (1..=MAX_BYTES).contains(&self.bytes.len())
            && (first..=MAX_READ.min(behind)).contains(&self.resume)
            && fixes_fit
    }

    /// Whether this is a copy of these instructions, which the function's file has: every byte is the same, except that
    /// displacements lead from the copy, and short jumps may have become longer ones. A reader makes copies, and what a
    /// reader says is not believed: else a hostile file could bring code of its own into the processes that use it.
    pub fn is_of(&self, original: &[u8]) -> bool {
        self.matches(original).is_some()
    }

    fn matches(&self, original: &[u8]) -> Option<()> {
        // Where the next instructions begin in the copy, and in the original.
        let (mut from, mut at) = (0, 0);
        for fix in &self.fixes {
            let (place, end) = (usize::from(fix.at), usize::from(fix.end));
            let before = self.bytes.get(from..place)?;
            let behind = self.bytes.get(place + WIDTH..end)?;
            let displacement = match starts(original, at, before) {
                Some(next) => {
                    let bytes = original.get(next..next + WIDTH)?.try_into().ok()?;
                    at = starts(original, next + WIDTH, behind)?;
                    i64::from(i32::from_le_bytes(bytes))
                }
                None => {
                    let (before, short) = match before {
                        [before @ .., 0x0f, code] if code & 0xf0 == 0x80 => (before, code - 0x10),
                        [before @ .., 0xe9] => (before, 0xeb),
                        _ => return None,
                    };
                    at = starts(original, at, before)
                        .and_then(|at| starts(original, at, &[short]))?;
                    let byte = original.get(at)?.cast_signed();
                    at += 1;
                    behind.is_empty().then_some(i64::from(byte))?
                }
            };
            (fix.target == at as i64 + displacement).then_some(())?;
            from = end;
        }
        let end = starts(original, at, self.bytes.get(from..)?)?;
        (end as u64 == self.resume).then_some(())
    }

    /// The copy for an address, of a function at an address. `None` if a target is too far away.
    pub fn copy_for(&self, address: u64, function: u64) -> Option<Vec<u8>> {
        let mut bytes = self.bytes.clone();
        for fix in &self.fixes {
            let target = function.wrapping_add_signed(fix.target);
            let end = address.wrapping_add(u64::from(fix.end));
            let at = usize::from(fix.at);
            bytes
                .get_mut(at..at + WIDTH)?
                .copy_from_slice(&displacement(end, target)?);
        }
        Some(bytes)
    }
}

/// The displacement that leads from the end of an instruction to a target. `None` if that is too far away.
pub fn displacement(end: u64, target: u64) -> Option<[u8; WIDTH]> {
    let distance = i32::try_from(target.wrapping_sub(end).cast_signed()).ok()?;
    Some(distance.to_le_bytes())
}

/// Where the bytes behind these begin, if the original has these at a place.
fn starts(original: &[u8], at: usize, bytes: &[u8]) -> Option<usize> {
    original
        .get(at..)?
        .starts_with(bytes)
        .then_some(at + bytes.len())
}
