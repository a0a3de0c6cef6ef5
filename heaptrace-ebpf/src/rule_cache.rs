//! Unwind rules that were found before, by their position in the code.
//!
//! A program runs through few positions of its code, and a search for a rule takes longer than the rest of a
//! frame. Each position has one slot, and the newest rule replaces the old one. Key and rule are one number,
//! so that both are read and written at once. The agent clears the cache when pages pass from one file to
//! another.

use heaptrace_common::limits::RULE_CACHE_SLOTS;

use crate::maps::RULE_CACHE;

const RULE_BITS: u32 = 16;
const OFFSET_BITS: u32 = 16;

/// A position in the code: the index of its page, and the offset in that page.
#[derive(Clone, Copy)]
pub struct Key(u64);

impl Key {
    /// The key of an offset in a page.
    #[inline(always)]
    pub fn new(page: u32, offset: u32) -> Self {
        Self(u64::from(page) << OFFSET_BITS | u64::from(offset & 0xffff))
    }

    #[inline(always)]
    fn slot(self) -> Option<*mut u64> {
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let hash = self.0.wrapping_mul(GOLDEN) >> 32;
        RULE_CACHE.get_ptr_mut(hash as u32 & (RULE_CACHE_SLOTS - 1))
    }

    /// The index of the cached rule.
    #[inline(always)]
    pub fn rule(self) -> Option<u32> {
        // SAFETY: the pointer comes from a lookup in this program; an aligned u64 is read whole.
        let cached = unsafe { self.slot()?.read_volatile() };
        (cached != 0 && cached >> RULE_BITS == self.0).then_some(cached as u32 & 0xffff)
    }

    /// Caches the index of a rule.
    #[inline(always)]
    pub fn store(self, rule: u32) {
        if let Some(slot) = self.slot() {
            // SAFETY: as in `rule`; written whole.
            unsafe { slot.write_volatile(self.0 << RULE_BITS | u64::from(rule & 0xffff)) };
        }
    }
}
