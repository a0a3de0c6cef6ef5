//! Tests of the tables against what others make of the same files.
//!
//! Stage: unwind.

mod caching;
mod damage;
mod oracle;
mod packing;
mod real;
mod sections;

use super::Table;
use crate::random::Random;

/// Asserts what the kernel program relies on.
fn assert_sound(table: &Table) {
    assert!(table.is_sound(), "{table:x?}");
}
