//! Hints: an array per process that tells the code of the fast path which frees heaptrace must see.
//!
//! No stage of the flow. The kernel program counts recorded blocks in it, and the fast path's code in the process reads
//! it: first the count of the block's page, which is 0 for almost all frees, then the slot of the block's address.
//! A slot with one block in it names that block exactly. So only a free whose slot two blocks share is seen without need.

/// Slots for pages; a power of two.
pub const PAGE_SLOTS: u32 = 1 << 14;

/// Slots for addresses; a power of two.
pub const ADDRESS_SLOTS: u32 = 1 << 16;

/// All slots of an array: those for pages, then those for addresses.
pub const HINT_SLOTS: u32 = PAGE_SLOTS + ADDRESS_SLOTS;

/// Most processes on the fast path at a time.
pub const MAX_FAST: u32 = 256;

/// What the fast path's code does with a call.
pub mod way {
    /// There is no fast path.
    pub const NONE: u32 = 0;
    /// It decides which calls are sampled, and passes the probe by with all others.
    pub const SAMPLED: u32 = 1;
    /// It makes the call, and a probe of its own behind the call records it: one trap, and not two.
    pub const EXACT: u32 = 2;
}

/// Where a thread's block of glibc holds the return address of the last allocation that the fast path's code passed on.
pub const PASSED_FROM: u64 = 0x98;

/// Where it holds that allocation's stack pointer: the return address lies there while the call runs.
pub const PASSED_AT: u64 = 0xa0;

/// Bits of a page's offset.
pub const PAGE_SHIFT: u32 = 12;

/// Low bits that an allocator's addresses never have.
pub const ALIGNMENT_SHIFT: u32 = 3;

/// Multiplier of the hash of an address.
pub const HASH_FACTOR: u32 = 0x9e37_79b1;

/// Bits that the count of a slot is above. Below are the addresses of its blocks, added up.
pub const COUNT_SHIFT: u32 = 48;

/// The slot of the page of an address.
#[inline(always)]
pub const fn page_slot(address: u64) -> u32 {
    (address >> PAGE_SHIFT) as u32 & (PAGE_SLOTS - 1)
}

/// The slot of an address, behind those of pages.
#[inline(always)]
pub const fn address_slot(address: u64) -> u32 {
    let hash = ((address >> ALIGNMENT_SHIFT) as u32).wrapping_mul(HASH_FACTOR);
    PAGE_SLOTS + (hash >> (u32::BITS - ADDRESS_SLOTS.trailing_zeros()))
}

/// What a block adds to the slot of its address: one, and its address without the low bits. An address of a user
/// fits below the count.
#[inline(always)]
pub const fn value(address: u64) -> u64 {
    (1 << COUNT_SHIFT) + (address >> ALIGNMENT_SHIFT)
}

/// Whether the slot of an address says that a free of it must be seen. The fast path's code does the same.
#[inline(always)]
pub const fn must_see(slot: u64, address: u64) -> bool {
    match slot >> COUNT_SHIFT {
        0 => false,
        1 => slot == value(address),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a slot with one block tells only that block's free, that one with two tells every free, and that it
    /// is as before when they have left in any order.
    #[test]
    fn slots_tell_their_block() {
        let (first, second, other) = (0x7f12_3456_7010, 0x7fff_ffff_fff8, 0x5555_0000_0008);
        assert!(!must_see(0, first));
        let one = value(first);
        assert!(must_see(one, first) && !must_see(one, other));
        let two = one.wrapping_add(value(second));
        for address in [first, second, other] {
            assert!(must_see(two, address));
        }
        let left = two.wrapping_sub(value(first));
        assert!(must_see(left, second) && !must_see(left, first));
        assert_eq!(left.wrapping_sub(value(second)), 0);
    }

    /// Check that every slot is in the array, and that addresses at the distances that allocators have spread.
    #[test]
    fn addresses_spread() {
        extern crate std;
        for step in [8, 16, 48, 64, 4096, 65_536, 1 << 20, 64 << 20] {
            let mut counts = std::vec![0_u32; HINT_SLOTS as usize];
            for n in 0..2_000 {
                let address = 0x7f12_3456_7010 + n * step;
                assert!(page_slot(address) < PAGE_SLOTS);
                let slot = address_slot(address);
                assert!((PAGE_SLOTS..HINT_SLOTS).contains(&slot));
                counts[slot as usize] += 1;
            }
            assert!(
                counts.iter().max() <= Some(&40),
                "{step}: {:?}",
                counts.iter().max()
            );
        }
    }
}
