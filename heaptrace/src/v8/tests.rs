//! Objects as V8 has them, in memory that is made by hand.

use std::collections::HashMap;
use std::fs;

use heaptrace_common::wire::V8Frame;

use super::layouts::{layout, version};
use super::names::cookie_of;
use super::*;

/// Memory of words, by address.
#[derive(Default)]
struct Words(HashMap<u64, u64>);

impl Memory for Words {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Option<()> {
        for (at, byte) in (address..).zip(bytes) {
            let word = self.0.get(&(at & !7))?;
            *byte = word.to_le_bytes()[(at & 7) as usize];
        }
        Some(())
    }
}

impl Words {
    /// Makes an object of a type at an address, with these words after its map, and returns the pointer to it.
    fn object(&mut self, at: u64, kind: u16, words: &[u64]) -> u64 {
        let map = 0x10_0000 + u64::from(kind) * 64;
        self.0.insert(map + 8, u64::from(kind) << 32);
        self.0.insert(at, map + 1);
        for (index, word) in words.iter().enumerate() {
            self.0.insert(at + 8 * (1 + index as u64), *word);
        }
        at + 1
    }

    /// Makes a string with one byte for a character.
    fn string(&mut self, at: u64, text: &str) -> u64 {
        let mut words = vec![(text.len() as u64) << 32];
        words.extend(padded(text.as_bytes()));
        self.object(at, 8, &words)
    }

    /// Makes an array of bytes.
    fn bytes(&mut self, at: u64, bytes: &[u8]) -> u64 {
        let mut words = vec![small(bytes.len() as u64)];
        words.extend(padded(bytes));
        self.object(at, 190, &words)
    }
}

fn padded(bytes: &[u8]) -> Vec<u64> {
    let chunks = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    chunks.collect()
}

fn small(number: u64) -> u64 {
    number << 32
}

fn node_20() -> Layout {
    layout(version(11, 3)).unwrap()
}

const SOURCE: &str = "first\nfunction f() {\n  call();\n}\n";

/// A function `f` that begins in line 2, in the script `/app.js`.
fn with_function(words: &mut Words) -> u64 {
    let source = words.string(0x2000, SOURCE);
    let name = words.string(0x2100, "file:///a%20b.js");
    let script = words.object(0x2200, 167, &[source, name, small(10), 0, 0, 0, 0]);
    let text = words.string(0x2300, "f");
    let flags = small(1 << 12);
    let scope = [flags, 0, small(1), 0, 0, text, 0, small(14), small(30)];
    let scope = words.object(0x2400, 261, &scope);
    words.object(0x2500, 262, &[1, scope, 1, script, 0])
}

/// Check that the name, the script and the line of a function are found, and that another object at its address is not taken for it.
#[test]
fn functions_are_found() {
    let mut words = Words::default();
    let object = with_function(&mut words);
    let cookie = cookie_of(&words, &node_20(), object).unwrap();
    let Some(Found::Named(named)) = function(&words, &node_20(), object, cookie) else {
        panic!("it is a function of a script");
    };
    assert_eq!(
        (named.name.as_str(), named.script.name.as_str()),
        ("f", "/a b.js")
    );
    assert_eq!((named.start, named.script.before), (Some(14), 10));
    let lines = lines_of(&words, &named.script).unwrap();
    assert_eq!((lines.line(14), lines.line(25)), (2, 3));
    assert_eq!(function(&words, &node_20(), object, cookie ^ 1), None);
    assert_eq!(function(&words, &node_20(), 0x2401, cookie), None);
    let built_in = words.object(0x2600, 262, &[1, 0x2301, 1, 0x2301, 0]);
    let cookie = cookie_of(&words, &node_20(), built_in).unwrap();
    let found = function(&words, &node_20(), built_in, cookie);
    assert_eq!(found, Some(Found::BuiltIn));
}

/// Check that strings that are composed of others are read, with wide and narrow parts, and that one that has itself as a part is not.
#[test]
fn composed_strings_are_read() {
    let mut words = Words::default();
    let narrow = words.string(0x3000, "abcdef");
    let wide = words.object(0x3100, 0, &[2 << 32, 0x672c_0041]);
    words.0.insert(0x3110, 0x0041_672c);
    let part = words.object(0x3200, 8 + 3, &[3 << 32, narrow, small(2)]);
    let pair = words.object(0x3300, 1, &[5 << 32, part, wide]);
    let alias = words.object(0x3400, 5, &[5 << 32, pair]);
    let outside = words.object(0x3500, 8 + 2, &[3 << 32, 0, 0x3010]);
    let heap = heap::Heap::new(&words);
    let name = |object, most| heap.name(object, most);
    assert_eq!(name(alias, 100).as_deref(), Some("cde本A"));
    assert_eq!(name(alias, 4).as_deref(), Some("cde本…"));
    assert_eq!(name(outside, 100).as_deref(), Some("abc"));
    let own = words.object(0x3600, 1, &[4 << 32, 0x3601, 0x3601]);
    assert_eq!(heap::Heap::new(&words).name(own, 100), None);
}

/// Check that an interpreted frame has the position of its instruction.
#[test]
fn interpreted_frames_have_positions() {
    let mut words = Words::default();
    let shared = with_function(&mut words);
    // Instruction 4 is at position 25.
    let table = words.bytes(0x4000, &[10, 104]);
    let bytecode = words.object(0x4100, 191, &[small(20), 0, 0, table]);
    let frame = |place| V8Frame {
        shared,
        code: bytecode,
        place,
    };
    let position = |place| places(&words, &node_20(), &frame(place))[0].position;
    assert_eq!(position(53 + 4), Some(25));
    assert_eq!(position(53 + 3), None);
    assert_eq!(position(5), None);
}

/// Check that compiled code has the functions that were put into it, innermost first, each at its own position.
#[test]
fn inlined_functions_are_found() {
    let mut words = Words::default();
    let shared = with_function(&mut words);
    // The call at 16 is of function 0, which was put in by entry 0.
    let packed: u64 = 26 << 1 | 1 << 31;
    let mut table = vec![34];
    let mut bits = packed << 1;
    while bits >= 0x80 {
        table.push(bits as u8 | 0x80);
        bits >>= 7;
    }
    table.push(bits as u8);
    let table = words.bytes(0x5000, &table);
    let entry = [(12_u64 << 1).to_le_bytes(), 0_u64.to_le_bytes()].concat();
    let entries = words.bytes(0x5100, &entry);
    let functions = words.object(0x5200, 175, &[small(1), shared]);
    let data = [small(8), 0, 0, functions, 0, 0, 0, 0, entries];
    let data = words.object(0x5300, 175, &data);
    let of_code = [0, data, table, 0, 0x9000, 13, 100, 0];
    let code = words.object(0x5400, 245, &of_code);
    let frame = |place| V8Frame {
        shared: 0x7001,
        code: code | V8Frame::IS_COMPILED,
        place,
    };
    let found = places(&words, &node_20(), &frame(0x9000 + 21));
    let found: Vec<_> = found.iter().map(|at| (at.shared, at.position)).collect();
    let cookie = cookie_of(&words, &node_20(), shared).unwrap();
    let inner = shared | u64::from(cookie) << V8Frame::COOKIE;
    assert_eq!(found, [(inner, Some(25)), (0x7001, Some(11))]);
    // A return address in other code, one at the end, and one that is none.
    for place in [0x8fff, 0x9000, 0x9000 + 101, u64::MAX] {
        let found = places(&words, &node_20(), &frame(place));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].position, None);
    }
}

/// Check that V8 is found in a program that has it, and in no other file.
#[test]
fn v8_is_found_in_its_file() {
    let own = fs::read("/proc/self/exe").unwrap();
    assert_eq!(find(own.as_slice()), None);
    assert!(!is_in(own.as_slice()));
    for word in [0, version(11, 4), u32::MAX] {
        assert_eq!(from_words([word]), None);
    }
    let image = from_words([version(11, 3)]).unwrap();
    assert!(is_sound(&image));
    assert_eq!(to_words(&image), [version(11, 3)]);
}

/// Check that a frame is recognized by its function, in the interpreter by its bytecode, too, and that frames with a mark in place of the
/// context, or with another object in place of the function, are none.
#[test]
fn frames_are_recognized() {
    let mut words = Words::default();
    let shared = with_function(&mut words);
    let bytecode = words.object(0x4000, 191, &[]);
    let code = words.object(0x4100, 252, &[]);
    let function = words.object(0x4200, 300, &[0, 0, shared, 0, 0, code]);
    let context = words.object(0x4300, 301, &[]);
    let recognized = |context, function, bytecode, position| {
        let on_stack = HashMap::from([
            (0x7f00 - 8, context),
            (0x7f00 - 16, function),
            (0x7f00 - 32, bytecode),
            (0x7f00 - 40, position),
        ]);
        let found = FrameWords::read(0x7f00, 77, |address| on_stack.get(&address).copied());
        frame(&words, &node_20(), found?)
    };
    let interpreted = recognized(context, function, bytecode, small(60)).unwrap();
    assert_eq!((interpreted.code, interpreted.place), (bytecode, 60));
    let (object, cookie) = super::shared(interpreted.shared);
    assert_eq!(object, shared);
    assert_eq!(Some(cookie), cookie_of(&words, &node_20(), shared));
    let compiled = recognized(context, function, shared, small(60)).unwrap();
    let expected = (code | V8Frame::IS_COMPILED, 77);
    assert_eq!((compiled.code, compiled.place), expected);
    assert_eq!(compiled.shared, interpreted.shared);
    assert_eq!(recognized(small(2), function, bytecode, small(60)), None);
    assert_eq!(recognized(context, bytecode, bytecode, small(60)), None);
}
