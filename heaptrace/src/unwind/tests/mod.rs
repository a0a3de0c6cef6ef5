//! Tests of the tables against what others make of the same files.
//!
//! Stage: unwind.

mod damage;
mod oracle;
mod packing;
mod real;
mod sections;

use heaptrace_common::unwind::{row_offset, row_rule};

use super::Table;

/// Asserts what the kernel program relies on.
fn assert_sound(table: &Table) {
    assert_eq!(table.pages.first(), Some(&0));
    assert_eq!(table.pages.last(), Some(&(table.rows.len() as u32)));
    for pages in table.pages.windows(2) {
        let rows = &table.rows[pages[0] as usize..pages[1] as usize];
        assert_eq!(rows.first().map(|row| row_offset(*row)), Some(0));
        let sorted = rows.is_sorted_by(|a, b| row_offset(*a) < row_offset(*b));
        assert!(sorted, "{rows:x?}");
        let mut rules = rows.iter().map(|row| row_rule(*row) as usize);
        assert!(rules.all(|rule| rule < table.rules.len()));
    }
}

/// Numbers that look random, the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = mix(self.0);
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// Mixes the bits of a number (splitmix64).
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
