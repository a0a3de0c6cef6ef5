//! Tests of the tables, some of which compare them with other software on the same files.
//!
//! Stage: unwind.

mod caching;
mod damage;
mod oracle;
mod packing;
mod real;
mod sections;

use super::Table;

/// Asserts the properties that the kernel program relies on.
fn assert_sound(table: &Table) {
    assert!(table.is_sound(), "{table:x?}");
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
