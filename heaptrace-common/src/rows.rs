//! How a table's rows and pages are packed in the kernel's maps.
//!
//! No stage of the flow. The kernel program runs this code, so it is written for the verifier.

/// Bits of a code offset within its page. A table finds the page by index, and the row by search.
pub const PAGE_BITS: u32 = 16;

/// A row of a table: the rule of this index applies from this offset of the page up to the next row.
#[inline(always)]
pub const fn pack_row(offset: u16, rule: u16) -> u32 {
    (rule as u32) << 16 | offset as u32
}

/// The offset in its page that a row begins at.
#[inline(always)]
pub const fn row_offset(row: u32) -> u32 {
    row & 0xffff
}

/// The index of a row's rule.
#[inline(always)]
pub const fn row_rule(row: u32) -> u32 {
    row >> 16
}

/// Entry of a page of code: the index of its first row, and the number of its rows.
#[inline(always)]
pub const fn pack_page(first_row: u32, rows: u32) -> u64 {
    (rows as u64) << 32 | first_row as u64
}

/// The first row of a page.
#[inline(always)]
pub const fn page_first_row(page: u64) -> u32 {
    page as u32
}

/// The number of rows of a page.
#[inline(always)]
pub const fn page_rows(page: u64) -> u32 {
    (page >> 32) as u32
}

/// The row of an index, from the slot at half that index. A slot has 8 bytes and holds two rows, the first in
/// the low half.
#[inline(always)]
pub const fn row_of_slot(slot: u64, index: u32) -> u32 {
    (slot >> ((index & 1) << 5)) as u32
}

/// A slot of two rows.
#[inline(always)]
pub const fn slot_of_rows(low: u32, high: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that packed rows, slots and pages unpack to the same values.
    #[test]
    fn packed_rows_unpack() {
        let low = pack_row(0xfffe, 7);
        let high = pack_row(3, 0xfffd);
        assert_eq!((row_offset(low), row_rule(low)), (0xfffe, 7));
        assert_eq!((row_offset(high), row_rule(high)), (3, 0xfffd));
        let slot = slot_of_rows(low, high);
        assert_eq!((row_of_slot(slot, 6), row_of_slot(slot, 7)), (low, high));
        let page = pack_page(0xffff_fffe, 65_536);
        assert_eq!(
            (page_first_row(page), page_rows(page)),
            (0xffff_fffe, 65_536)
        );
    }
}
