//! Tests of the tables, some of which compare them with other software on the same files.
//!
//! Stage: unwind.

mod caching;
mod damage;
mod interned;
mod oracle;
mod packing;
mod real;
mod sections;

use super::Table;
use crate::random::Random;

/// Asserts the properties that the kernel program relies on.
fn assert_sound(table: &Table) {
    assert!(table.is_sound(), "{table:x?}");
}
