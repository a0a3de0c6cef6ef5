//! Tests of types in data files.

use super::super::{ReadOptions, crafted, read_from};
use crate::join::StackId;
use crate::profile::{BlockType, Types, Way};

/// Types of so many stacks, the first of which has none.
pub(super) fn types(stacks: u32) -> Types {
    let block_type = |name: &str, way| BlockType {
        name: name.to_owned(),
        element: "Order".to_owned(),
        element_bytes: 40,
        header_bytes: 8,
        is_capacity: way == Way::Frames,
        way,
    };
    Types {
        types: vec![
            block_type("std::vector<Order>", Way::Frames),
            block_type("Order", Way::Dataflow),
        ],
        of_stacks: (1..=stacks).map(|id| (StackId(id), id % 2)).collect(),
        classes: Vec::new(),
    }
}

/// Check that types are read as they are written, and that a way of a later version, or a type that is not there, ends the reading and gives no
/// names at all.
#[test]
fn types_of_other_versions_are_read() {
    let read = |symbols: &[u8]| {
        let file = crafted(&[], &[symbols.to_vec()]);
        read_from(file.as_slice(), "it", ReadOptions::default()).unwrap()
    };
    // The types `T`, by the way 3, and `U<T>`, by the way 0; the stacks 5 and 7 of the second.
    let types = [
        [0x22, 5, 0x0a, 1, b'T', 0x30, 3].to_vec(),
        [&[0x22, 9, 0x0a, 4][..], b"U<T>", &[0x12, 1, b'T']].concat(),
    ];
    let stacks = |of| [0x2a, 6, 0x08, of, 0x12, 2, 5, 2];
    let good = read(&[types.concat(), stacks(1).to_vec()].concat());
    let found = good.symbols.unwrap().types;
    let known = |stack| {
        let it = found.of(StackId(stack))?;
        Some((it.name.as_str(), it.element.as_str(), it.way))
    };
    assert_eq!(known(5), Some(("U<T>", "T", Way::Frames)));
    assert_eq!((known(5), known(6)), (known(7), None));
    assert_eq!(found.types[0].element, "T");

    let newer = [0x22, 5, 0x0a, 1, b'T', 0x30, 9];
    let missing = [types.concat(), stacks(2).to_vec()].concat();
    for (symbols, why) in [
        (&newer[..], "unknown way to a type 9"),
        (&missing, "unknown type 2"),
    ] {
        let read = read(symbols);
        assert!(read.is_damaged && read.symbols.is_none(), "{why}");
        assert!(read.warnings[0].contains(why), "{:?}", read.warnings);
    }
}
