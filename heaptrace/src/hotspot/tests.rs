//! Decodes memory as it was in processes of Java 17 and 25.
//!
//! Part of `hotspot`.

use heaptrace_common::wire::{JavaFrame, Jvm};

use super::layout::Layout;
use super::lines::line;
use super::machine::Machine;
use super::memory::Memory;
use super::names::{Named, Names};
use super::packed::{Packed, Packing};
use super::scopes::{Scope, scopes};

/// Pieces of memory.
#[derive(Default)]
struct Pieces(Vec<(u64, Vec<u8>)>);

impl Memory for Pieces {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let found = self.0.iter().find_map(|(start, bytes)| {
            let within = usize::try_from(address.checked_sub(*start)?).ok()?;
            bytes.get(within..)
        });
        let found = found.unwrap_or_default();
        let count = found.len().min(buffer.len());
        buffer[..count].copy_from_slice(&found[..count]);
        count
    }
}

impl Pieces {
    fn add(&mut self, address: u64, bytes: &[u8]) {
        self.0.push((address, bytes.to_vec()));
    }

    /// A structure with values at offsets.
    fn add_struct(&mut self, address: u64, size: usize, values: &[(u16, &[u8])]) {
        let mut bytes = vec![0; size];
        for (offset, value) in values {
            let at = usize::from(*offset);
            bytes[at..at + value.len()].copy_from_slice(value);
        }
        self.0.push((address, bytes));
    }

    fn add_symbol(&mut self, address: u64, text: &str) {
        let mut bytes = vec![0; 4];
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
        self.0.push((address, bytes));
    }
}

fn bytes(text: &str) -> Vec<u8> {
    let digits = text.split_whitespace();
    digits
        .map(|it| u8::from_str_radix(it, 16).unwrap())
        .collect()
}

/// What a compiled method of Java 17 had: `Points.outer` with `inner`, `leaf`, `alloc` and two more inlined.
const POSITIONS: &str = "
    ff ff ff ff 00 00 00 00 00 00 00 00 00 00 00 00 78 00 00 00 42 00 00 00 00 00 00 00 00 00 00 00
    94 00 00 00 5c 00 00 00 00 00 00 00 00 00 00 00 e8 00 00 00 72 00 00 00 00 00 00 00 01 00 00 00
    59 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00";
const SCOPES: &str = "
    ff 04 00 01 00 00 00 00 00 21 02 01 00 00 84 00 01 0c 01 0a 00 01 00 00 0f 02 02 15 00 00 18 03
    05 15 00 00 03 00 00 00 00 00 00 1e 04 06 24 00 00 2b 05 05 24 00 00 05 00 00 01 00 00 44 00 00
    00 00 31 06 16 37 00 00 03 00 00 01 00 00 d4 02 1e 04 0e 48 00 00 50 07 05 24 00 00 56 08 0f 24
    00 00 05 00 00 01 00 00 44 01 00 00 c4 00 01 00 d3 02 31 06 1d 62 6e 00";

const BLOB: u64 = 0x1_0000;
const CODE: u64 = 0x1_1000;

/// The memory of that method, whose methods all are the same one.
fn memory() -> Pieces {
    let mut memory = Pieces::default();
    memory.add_struct(
        BLOB,
        320,
        &[
            (32, &CODE.to_le_bytes()),
            (96, &0x2_0000u64.to_le_bytes()),
            (112, &0x6_0000u64.to_le_bytes()),
            (120, &0x3_0000u64.to_le_bytes()),
            (260, &0x8000u32.to_le_bytes()),
            (268, &0x4000u32.to_le_bytes()),
            (272, &(0x4000 + bytes(POSITIONS).len() as u32).to_le_bytes()),
            (304, &77u32.to_le_bytes()),
        ],
    );
    memory.add(BLOB + 0x4000, &bytes(POSITIONS));
    let methods: Vec<u8> = (0..8u64).flat_map(|_| 0x6_0000u64.to_le_bytes()).collect();
    memory.add(BLOB + 0x8000, &methods);
    let mut name = b"nmethod\0".to_vec();
    name.resize(64, 0);
    memory.add(0x2_0000, &name);
    memory.add(0x3_0000, &bytes(SCOPES));
    memory.add_struct(0x6_0000, 64, &[(8, &0x7_0000u64.to_le_bytes())]);
    // Its code has 24 bytes, after which the table of lines follows.
    let mut constant = vec![0; 48 + 24];
    constant[8..16].copy_from_slice(&0x8_0000u64.to_le_bytes());
    constant[28] = 1;
    constant[32] = 24;
    constant[34] = 2;
    constant.extend(bytes("ff 00 22 00"));
    memory.add(0x7_0000, &constant);
    memory.add_struct(
        0x8_0000,
        72 + 32,
        &[
            (24, &0x9_0000u64.to_le_bytes()),
            (54, &[3]),
            (72 + 16, &0xa_0000u64.to_le_bytes()),
            (72 + 24, &0xb_0000u64.to_le_bytes()),
        ],
    );
    memory.add_struct(0x9_0000, 64, &[(24, &0xc_0000u64.to_le_bytes())]);
    memory.add_symbol(0xa_0000, "outer");
    memory.add_symbol(0xb_0000, "Points.java");
    memory.add_symbol(0xc_0000, "demo/Points");
    memory
}

fn machine() -> Machine {
    Machine {
        jvm: Jvm::default(),
        layout: Layout::JAVA_17,
    }
}

/// The distance of an address in the code from the blob.
fn place(in_code: u32) -> u32 {
    (CODE - BLOB) as u32 + in_code
}

/// Check that a return address leads to the methods that are inlined there, innermost first, each with its position.
#[test]
fn return_addresses_lead_to_inlined_methods() {
    let positions = |in_code| {
        let found = scopes(&memory(), &Layout::JAVA_17, BLOB, place(in_code)).unwrap();
        assert!(found.iter().all(|scope| scope.method == 0x6_0000));
        found.iter().map(|scope| scope.position).collect::<Vec<_>>()
    };
    assert_eq!(positions(0x78), [21, 4, 5, 4, 1, 11].map(Some));
    assert_eq!(positions(0x94), [14, 4, 13, 4, 1, 11].map(Some));
    // No call returns there.
    assert_eq!(positions(0x79), []);
}

/// Check that numbers are packed as before Java 20, and since then without bytes of 0.
#[test]
fn numbers_are_unpacked() {
    for (packing, packed, expected) in [
        (Packing::Old, "00", 0),
        (Packing::Old, "bf", 191),
        (Packing::Old, "d4 02", 212 + (2 << 6)),
        (
            Packing::Old,
            "ff ff ff ff ff",
            255u32.wrapping_mul(0x0104_1041),
        ),
        (Packing::WithoutZeros, "01", 0),
        (Packing::WithoutZeros, "d5 03", 212 + (2 << 6)),
    ] {
        let packed = bytes(packed);
        let found = Packed::new(&packed, packing).number();
        assert_eq!(found, Some(expected), "{packed:x?}");
    }
    assert_eq!(Packed::new(&[0], Packing::WithoutZeros).number(), None);
    assert_eq!(Packed::new(&[0xff], Packing::Old).number(), None);
}

/// Check that tables of lines of Java 17 and 25 are read: with a single entry, and with several that are short or long.
#[test]
fn lines_are_found() {
    assert_eq!(line(&bytes("ff 00 22 00"), Packing::Old, 11), 17);
    assert_eq!(line(&bytes("ff 01 23 00"), Packing::WithoutZeros, 11), 17);
    // Position 0 in line 49, 4 in 50, 13 in 48.
    let several = bytes("ff 00 62 21 ff 12 03 00");
    let found = [0, 3, 4, 12, 13, 99].map(|at| line(&several, Packing::Old, at));
    assert_eq!(found, [49, 49, 50, 50, 48, 48]);
    assert_eq!(line(&[], Packing::Old, 3), 0);
    assert_eq!(line(&several, Packing::Old, u32::MAX), 0);
}

/// Check that frames have class, method, file and line, and that code which was replaced has no name.
#[test]
fn frames_have_names() {
    let mut names = Names::default();
    let named = |names: &mut Names, code, place| {
        names.named(&memory(), &machine(), JavaFrame { code, place })
    };
    let compiled = BLOB | JavaFrame::BLOB;
    let found = named(&mut names, compiled, 77 << 32 | u64::from(place(0x78)));
    let Named::Java(frames) = found else {
        panic!("{found:?}");
    };
    assert_eq!(frames.len(), 6);
    let first = &frames[0];
    assert_eq!(
        (first.name(), first.file(), first.line),
        ("demo.Points.outer", "Points.java", 17)
    );
    let interpreted = named(&mut names, 0x6_0000, 0x7_0000 >> 3 << 32 | 11);
    assert_eq!(interpreted, Named::Java([first.clone()].into()));
    for (code, place) in [
        (compiled, 78 << 32 | u64::from(place(0x78))),
        (0x6_0000, 0x7_0008 >> 3 << 32 | 11),
        (0x6_0001, 0),
        (0, 0),
    ] {
        assert_eq!(named(&mut names, code, place), Named::Unknown, "{code:x}");
    }
}

/// Check that a chain of scopes that leads back to itself ends.
#[test]
fn circles_of_scopes_end() {
    let mut memory = memory();
    let (_, scopes_of) = memory.0.iter_mut().find(|it| it.0 == 0x3_0000).unwrap();
    scopes_of[0x42..0x45].copy_from_slice(&[0x42, 1, 2]);
    let found = scopes(&memory, &Layout::JAVA_17, BLOB, place(0x78)).unwrap();
    let expected = Scope {
        method: 0x6_0000,
        position: Some(1),
    };
    assert_eq!(found, vec![expected; 64]);
}
