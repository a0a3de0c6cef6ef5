//! The number that goes with each probe: what its program can't know of the place it runs at.
//!
//! How far the code of the probed file reaches before and behind the probe, 32 bits each.

/// Packs how far code reaches before and behind a probe; what doesn't fit is cut short.
pub const fn pack(before: u64, behind: u64) -> u64 {
    const MOST: u64 = u32::MAX as u64;
    let before = if before > MOST { MOST } else { before };
    let behind = if behind > MOST { MOST } else { behind };
    before << 32 | behind
}

/// How far code reaches before and behind the probe that has this cookie.
pub const fn reach(cookie: u64) -> (u64, u64) {
    (cookie >> 32, cookie & u32::MAX as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that both numbers come back, and that a large one doesn't spill into the other.
    #[test]
    fn packs_both() {
        assert_eq!(reach(pack(0x1234, 0xffff_ffff)), (0x1234, 0xffff_ffff));
        assert_eq!(reach(pack(7, 1 << 40)), (7, 0xffff_ffff));
    }
}
