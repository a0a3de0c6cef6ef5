//! Hostile debug information: cycles, depth, long names, and units in other files.
//!
//! Part of hostile. Each file has a symbol for its code, too, so a name is found whatever the debug information does.

use std::fs;
use std::os::unix::fs::symlink;

use anyhow::{Result, ensure};

use super::elf::{CODE, Elf, PROGBITS, STRTAB, SYMTAB, Section, symbols};
use super::suite::{CaseRun, functions, word};
use super::surroundings::make_pipe;

/// The number of allocations of the program itself, and through the file.
const OWN: u64 = 100;
const EACH: u64 = 10;

/// The bytes of code.
const LENGTH: u32 = 14;

/// The kinds of entries. Attributes: 0x11 and 0x12 place, 0x03 name (0x0e: in the table of strings), 0x31 origin, 0x47 specification (0x13: in
/// this unit, 0x10: in any), 0x1b folder, 0x2130 and 0x2131 name and id of the unit's file.
const KINDS: &[u8] = &[
    1, 0x11, 1, 0x11, 0x01, 0x12, 0x06, 0, 0, // unit, with a place
    2, 0x2e, 1, 0x11, 0x01, 0x12, 0x06, 0x03, 0x0e, 0, 0, // function, with a place and a name
    3, 0x2e, 1, 0x11, 0x01, 0x12, 0x06, 0x31, 0x13, 0,
    0, // function, with a place and an origin
    4, 0x2e, 0, 0x31, 0x13, 0, 0, // function that is another one
    5, 0x2e, 0, 0x47, 0x13, 0, 0, // the same by its specification
    6, 0x1d, 1, 0x31, 0x13, 0x11, 0x01, 0x12, 0x06, 0, 0, // inlined function
    7, 0x11, 0, 0x11, 0x01, 0x12, 0x06, 0x1b, 0x08, 0xb0, 0x42, 0x08, 0xb1, 0x42, 0x07, 0,
    0, // unit elsewhere
    8, 0x11, 1, 0xb1, 0x42, 0x07, 0xb0, 0x42, 0x08, 0,
    0, // the unit itself, which names another file
    9, 0x2e, 1, 0x11, 0x01, 0x12, 0x06, 0x31, 0x10, 0,
    0, // function whose origin is in any unit
    0,
];

/// The offset of the first entry of a unit.
const FIRST: u32 = 11;

/// A unit of DWARF 4.
#[derive(Default)]
struct Unit(Vec<u8>);

impl Unit {
    fn kind(&mut self, kind: u8) -> &mut Self {
        self.0.push(kind);
        self
    }

    fn number(&mut self, number: u32) -> &mut Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    /// The place of the code.
    fn place(&mut self) -> &mut Self {
        self.0.extend(CODE.to_le_bytes());
        self.number(LENGTH)
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.0.extend(text.bytes().chain([0]));
        self
    }

    fn id(&mut self, id: u64) -> &mut Self {
        self.0.extend(id.to_le_bytes());
        self
    }

    /// The offset of the next entry.
    fn here(&self) -> u32 {
        FIRST + self.0.len() as u32
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = (self.0.len() as u32 + FIRST - 4).to_le_bytes().to_vec();
        bytes.extend([4, 0, 0, 0, 0, 0, 8]);
        bytes.extend(&self.0);
        bytes
    }
}

/// A file with code, a symbol and debug information.
fn file(info: Vec<u8>, strings: Vec<u8>) -> Elf {
    let (table, names) = symbols(&[("through", CODE, u64::from(LENGTH))]);
    Elf::with(vec![
        Section {
            link: 2,
            entry: 24,
            ..Section::new(".symtab", SYMTAB, table)
        },
        Section::new(".strtab", STRTAB, names),
        Section::new(".debug_info", PROGBITS, info),
        Section::new(".debug_abbrev", PROGBITS, KINDS.to_vec()),
        Section::new(".debug_str", PROGBITS, strings),
        Section::new(".debug_addr", PROGBITS, vec![0; 64]),
    ])
}

/// A file with units alone.
fn units(info: Vec<u8>) -> Elf {
    Elf::with(vec![
        Section::new(".debug_info.dwo", PROGBITS, info),
        Section::new(".debug_abbrev.dwo", PROGBITS, KINDS.to_vec()),
    ])
}

/// Allocates through the file. Its function must have a name that begins in this way.
fn named(case: &CaseRun<'_>, elf: &Elf, name: &str) -> Result<String> {
    let path = case.file("x.so");
    elf.write(&path)?;
    let report = case.traced(&["map".as_ref(), word(&path)], OWN + EACH)?;
    let functions = functions(&report);
    let found = functions.iter().find(|found| found.starts_with(name));
    ensure!(found.is_some(), "no function is named {name}");
    let longest = functions.iter().map(String::len).max().unwrap_or(0);
    ensure!(longest < 20_000, "a name has {longest} bytes");
    Ok(format!("all seen, with names of at most {longest} bytes"))
}

/// Functions that are each other's origin, and inlined functions that are their own.
pub(super) fn cycles(case: &CaseRun<'_>) -> Result<String> {
    let mut unit = Unit::default();
    unit.kind(1).place();
    let (one, other) = (unit.here(), unit.here() + 5);
    unit.kind(4).number(other).kind(5).number(one);
    unit.kind(3).place().number(one);
    let inlined = unit.here();
    for _ in 0..1000 {
        unit.kind(6).number(inlined).place();
    }
    unit.0.extend([0; 1002]);
    named(case, &file(unit.bytes(), vec![0]), "through")
}

/// Functions inlined into each other, 50,000 deep.
pub(super) fn deep_inlines(case: &CaseRun<'_>) -> Result<String> {
    let mut unit = Unit::default();
    unit.kind(1).place();
    unit.kind(2).place().number(1);
    let function = FIRST + 13;
    for _ in 0..50_000 {
        unit.kind(6).number(function).place();
    }
    unit.0.extend([0; 50_002]);
    named(case, &file(unit.bytes(), b"\0deep\0".to_vec()), "deep")
}

/// Names of 1 MB: one of a function and, 200 deep, of inlined ones.
pub(super) fn long_names(case: &CaseRun<'_>) -> Result<String> {
    let mut strings = vec![0];
    strings.extend(b"_ZN3abcI".repeat(128 << 10));
    strings.push(0);
    let mut unit = Unit::default();
    unit.kind(1).place();
    let function = unit.here();
    unit.kind(2).place().number(1);
    for _ in 0..200 {
        unit.kind(6).number(function).place();
    }
    unit.0.extend([0; 202]);
    named(case, &file(unit.bytes(), strings), "_ZN3abcI")
}

/// Thousands of units in other files, all for the same code: devices, pipes, files of the system, and units that refer to each other.
pub(super) fn split_units(case: &CaseRun<'_>) -> Result<String> {
    let folder = case.file("");
    let here = folder.to_string_lossy().into_owned();
    make_pipe(&case.file("pipe.dwo"))?;
    symlink("/dev/zero", case.file("zero.dwo"))?;
    fs::write(case.file("text.dwo"), "no ELF file")?;
    // A unit that names its own file and whose function's origin is the function itself, or an entry of another unit.
    for (id, name, origin) in [(1, "one.dwo", FIRST + 17), (2, "two.dwo", 1 << 20)] {
        let mut unit = Unit::default();
        unit.kind(8).id(id).text("one.dwo");
        unit.kind(9).place().number(origin);
        unit.0.extend([0; 4]);
        units(unit.bytes()).write(&case.file(name))?;
    }
    let names = [
        "one.dwo",
        "two.dwo",
        "pipe.dwo",
        "zero.dwo",
        "text.dwo",
        "",
        ".",
        "..",
        "/etc/shadow",
        "/proc/self/mem",
        "/proc/kmsg",
        "x.so",
        "/dev/stdin",
    ];
    let mut info = Vec::new();
    for number in 0..6_000_usize {
        let mut unit = Unit::default();
        unit.kind(7).place().text(&here);
        unit.text(names[number % names.len()]).id(number as u64 + 1);
        info.extend(unit.bytes());
    }
    // A package whose index has no free slot: the search for an id must end.
    let mut index = Vec::new();
    let slots = 1_u32 << 12;
    for number in [2, 1, 1, slots] {
        index.extend(u32::to_le_bytes(number));
    }
    for slot in 0..slots {
        index.extend((u64::from(slot) << 40 | 0xffff).to_le_bytes());
    }
    index.resize(index.len() + slots as usize * 4, 1);
    index.extend([1, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    let mut package = units(vec![0; 64]);
    package
        .sections
        .push(Section::new(".debug_cu_index", PROGBITS, index));
    package.write(&case.file("x.so.dwp"))?;
    named(case, &file(info, vec![0]), "through")
}
