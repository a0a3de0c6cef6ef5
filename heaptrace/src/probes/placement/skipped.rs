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

    /// The copy for an address, of a function at an address. `None` if a target is too far away.
    pub fn copy_for(&self, address: u64, function: u64) -> Option<Vec<u8>> {
        let mut bytes = self.bytes.clone();
        for fix in &self.fixes {
            let target = function.wrapping_add_signed(fix.target);
            let end = address.wrapping_add(u64::from(fix.end));
            let distance = i32::try_from(target.wrapping_sub(end).cast_signed()).ok()?;
            let at = usize::from(fix.at);
            bytes
                .get_mut(at..at + WIDTH)?
                .copy_from_slice(&distance.to_le_bytes());
        }
        Some(bytes)
    }
}
