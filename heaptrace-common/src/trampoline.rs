//! The kernel's trampoline: the address that a function with a return probe returns to.

/// The page that the kernel maps for it: the highest page below the end of user space, which nothing else
/// uses. That end depends on the number of levels of page tables: four or five.
const PAGES: [u64; 2] = [0x7fff_ffff_e000, 0xff_ffff_ffff_e000];

/// Whether an address is in the trampoline.
#[inline(always)]
pub const fn is_trampoline(address: u64) -> bool {
    let page = address & !0xfff;
    page == PAGES[0] || page == PAGES[1]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the trampoline is recognized with four and with five levels of page tables, and
    /// neighbouring addresses are not.
    #[test]
    fn trampolines_are_recognized() {
        for bits in [47, 56] {
            let last = (1 << bits) - 0x2000;
            assert!(is_trampoline(last) && is_trampoline(last + 0xfff));
            assert!(!is_trampoline(last - 1) && !is_trampoline(last + 0x1000));
        }
    }
}
