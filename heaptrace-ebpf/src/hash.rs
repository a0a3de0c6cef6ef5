//! The hash of stacks and of raw stacks.

/// Adds a value to a hash of 128 bits.
#[inline(always)]
pub fn mix([mut low, mut high]: [u64; 2], value: u64) -> [u64; 2] {
    low = (low ^ value).wrapping_mul(0x9fb2_1c65_1e98_df25);
    low ^= low >> 32;
    high = (high.rotate_left(27) ^ value).wrapping_mul(0xff51_afd7_ed55_8ccd);
    high ^= high >> 29;
    [low, high]
}
