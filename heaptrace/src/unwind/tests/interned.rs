//! Rules and Python interpreters, which tables share and which are never removed.
//!
//! Stage: unwind.

use heaptrace_common::unwind::Rule;
use heaptrace_common::wire::PythonImage;

use crate::python;
use crate::unwind::Table;
use crate::unwind::store::{NoRoom, Store, StoreLimits};

/// Room for one table.
const LIMITS: StoreLimits = StoreLimits {
    slots: 100,
    segment: 100,
    pages: 1,
    rules: 10,
    tables: 5,
    pythons: 2,
    v8s: 2,
};

/// A table with one rule, and with an interpreter whose key is at this address.
fn table(cfa_offset: i32, key_at: Option<u64>) -> Table {
    let rule = Rule {
        cfa_offset,
        ..Rule::SIGNAL
    };
    let image = |key_at| PythonImage {
        key_at,
        loops: [[1, 2], [0, 0]],
        layout: python::layout(12).unwrap(),
    };
    Table {
        pages: vec![0, 1],
        rows: vec![1 << 16],
        rules: vec![Rule::NONE, rule],
        python: key_at.map(image),
        ..Table::default()
    }
}

/// Check that the rules and the interpreter of a table that found no room at first are written when it finds room. They were
/// taken for written before.
#[test]
fn a_refused_table_leaves_nothing_behind() {
    let mut store = Store::new(LIMITS);
    let first = store.add(&table(8, None)).unwrap();
    let second = table(16, Some(1));
    assert_eq!(store.add(&second), Err(NoRoom::Full));
    store.remove(first.table.slot);
    let placed = store.add(&second).unwrap();
    assert_eq!(placed.rules.values, second.rules[1..]);
    assert_eq!(placed.pythons.values, [second.python.unwrap()]);
    assert_eq!(placed.table.python, 1);
}

/// Check that equal interpreters share an entry, that others get one of their own, and that tables of interpreters without
/// room are loaded without them.
#[test]
fn equal_interpreters_share_an_entry() {
    let mut store = Store::new(LIMITS);
    let mut add = |key_at| {
        let placed = store.add(&table(8, key_at)).unwrap();
        store.remove(placed.table.slot);
        let written = placed.pythons.values.len();
        (placed.table.python, placed.pythons.first, written)
    };
    assert_eq!(add(None), (0, 0, 0));
    assert_eq!(add(Some(7)), (1, 0, 1));
    assert_eq!(add(Some(7)), (1, 1, 0));
    assert_eq!(add(Some(9)), (2, 1, 1));
    assert_eq!(add(Some(7)), (1, 2, 0));
    assert_eq!(add(Some(11)), (0, 2, 0));
}
