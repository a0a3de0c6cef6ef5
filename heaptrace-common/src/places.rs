//! Places that addresses share: which count an address goes to.
//!
//! No stage of the flow: the kernel program counts in these places what is known of addresses, and the agent takes out
//! what it removes. A place whose count is 0 tells that nothing is known of any address there; that is all that most
//! calls need to ask. Another count tells nothing.

/// Places of blocks: with a thousand of them in the live map, which is a sample of some 500 MiB, one free in sixty
/// looks there for nothing. A power of two.
pub const BLOCK_PLACES: u32 = 1 << 16;

/// Places of calls, of which there are as many as threads that are in one; a power of two.
pub const CALL_PLACES: u32 = 1 << 13;

/// The place of a block, by its address.
#[inline(always)]
pub const fn of_block(address: u64) -> u32 {
    mix(address) & (BLOCK_PLACES - 1)
}

/// The place of a call, by its stack pointer at its entry.
#[inline(always)]
pub const fn of_call(sp: u64) -> u32 {
    mix(sp) & (CALL_PLACES - 1)
}

/// The middle of the product, which every bit of an address below has a part in.
const fn mix(address: u64) -> u32 {
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::{vec, vec::Vec};

    use super::*;

    /// Check that addresses as allocators and threads make them, so far apart or at the same offset of so many stacks,
    /// spread over the places: a place that many share would let no call by.
    #[test]
    fn addresses_spread() {
        for step in [16, 48, 64, 4096, 65_536, 1 << 20, 8 << 20] {
            let addresses: Vec<u64> = (0..2_000).map(|n| 0x7f12_3456_7010 + n * step).collect();
            let most = |places: u32, of: fn(u64) -> u32| {
                let mut counts = vec![0; places as usize];
                addresses
                    .iter()
                    .for_each(|it| counts[of(*it) as usize] += 1);
                counts.into_iter().max()
            };
            assert!(most(BLOCK_PLACES, of_block) <= Some(3), "{step}");
            assert!(most(CALL_PLACES, of_call) <= Some(5), "{step}");
        }
    }
}
