//! Where a function returns to that has a return probe: the kernel's trampoline.

/// The page that the kernel maps for it: it takes the highest page below the end of user space, which nothing
/// else uses. Where that end is depends on the levels of page tables.
const PAGES: [u64; 2] = [0x7fff_ffff_e000, 0xff_ffff_ffff_e000];

/// Whether a return address is the trampoline.
#[inline(always)]
pub const fn is_trampoline(address: u64) -> bool {
    let page = address & !0xfff;
    page == PAGES[0] || page == PAGES[1]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that both ends of user space are known, of four levels of page tables and of five, and that
    /// neighbours are none.
    #[test]
    fn both_ends() {
        for bits in [47, 56] {
            let last = (1 << bits) - 0x2000;
            assert!(is_trampoline(last) && is_trampoline(last + 0xfff));
            assert!(!is_trampoline(last - 1) && !is_trampoline(last + 0x1000));
        }
    }
}
