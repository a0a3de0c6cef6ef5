//! Counting filters: the slot that an address is counted in. Many addresses share a slot.
//!
//! No stage of the flow: the kernel program counts recorded blocks and pending calls in these slots, and the
//! agent uncounts the blocks that it removes. If the count of a slot is 0, nothing is recorded for any of its
//! addresses, and most calls end with that. Any other count says nothing about a single address.

/// Slots for blocks; a power of two. With a thousand blocks in the live map, which is a sample of some 500
/// MiB, one free in sixty does a useless lookup.
pub const BLOCK_SLOTS: u32 = 1 << 16;

/// Slots for calls; a power of two. There are as many calls as threads that are in one.
pub const CALL_SLOTS: u32 = 1 << 13;

/// The slot of a block, by its address.
#[inline(always)]
pub const fn block_slot(address: u64) -> u32 {
    mix(address) & (BLOCK_SLOTS - 1)
}

/// The slot of a call, by its stack pointer at its entry.
#[inline(always)]
pub const fn call_slot(sp: u64) -> u32 {
    mix(sp) & (CALL_SLOTS - 1)
}

/// The middle of the product: every lower bit of the address affects it.
const fn mix(address: u64) -> u32 {
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::{vec, vec::Vec};

    use super::*;

    /// Check that addresses at the distances that allocators and thread stacks have spread over the slots, so
    /// that no slot is shared by many.
    #[test]
    fn addresses_spread() {
        for step in [16, 48, 64, 4096, 65_536, 1 << 20, 8 << 20] {
            let addresses: Vec<u64> = (0..2_000).map(|n| 0x7f12_3456_7010 + n * step).collect();
            let most = |slots: u32, slot: fn(u64) -> u32| {
                let mut counts = vec![0; slots as usize];
                addresses
                    .iter()
                    .for_each(|it| counts[slot(*it) as usize] += 1);
                counts.into_iter().max()
            };
            assert!(most(BLOCK_SLOTS, block_slot) <= Some(3), "{step}");
            assert!(most(CALL_SLOTS, call_slot) <= Some(5), "{step}");
        }
    }
}
