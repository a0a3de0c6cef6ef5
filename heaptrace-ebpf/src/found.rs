//! Rules that were found before: a program goes through few places of its code, and a search takes longer than the rest of
//! a frame.
//!
//! A cache without chains: each place of the code has one slot, and the newest rule has it. Key and rule are one number, so
//! that they are read and written at once. The agent empties it when pages go from one file to another.

use heaptrace_common::limits::FOUND_SLOTS;

use crate::maps::FOUND;

const RULE_BITS: u32 = 16;
const OFFSET_BITS: u32 = 16;

/// A place of code as the cache knows it: the index of its page, and the offset in that.
#[derive(Clone, Copy)]
pub struct Place(u64);

impl Place {
    /// The place at an offset of a page.
    #[inline(always)]
    pub fn new(page: u32, offset: u32) -> Self {
        Self(u64::from(page) << OFFSET_BITS | u64::from(offset & 0xffff))
    }

    #[inline(always)]
    fn slot(self) -> Option<*mut u64> {
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let hash = self.0.wrapping_mul(GOLDEN) >> 32;
        FOUND.get_ptr_mut(hash as u32 & (FOUND_SLOTS - 1))
    }

    /// The index of its rule.
    #[inline(always)]
    pub fn rule(self) -> Option<u32> {
        // SAFETY: the pointer comes from a lookup in this program; an aligned u64 is read whole.
        let found = unsafe { self.slot()?.read_volatile() };
        (found != 0 && found >> RULE_BITS == self.0).then_some(found as u32 & 0xffff)
    }

    /// Remembers its rule.
    #[inline(always)]
    pub fn remember(self, rule: u32) {
        if let Some(slot) = self.slot() {
            // SAFETY: as in `rule`; written whole.
            unsafe { slot.write_volatile(self.0 << RULE_BITS | u64::from(rule & 0xffff)) };
        }
    }
}
