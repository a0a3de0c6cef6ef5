//! Properties that must hold for V8 in every file, and for every content of memory.
//!
//! Part of `v8`.

use heaptrace_common::wire::V8Frame;

use super::layouts::{layout, version};
use super::{
    Found, FrameWords, Memory, find, from_words, function, is_sound, lines_of, places, shared,
    to_words,
};
use crate::reader::decode;

/// Memory that has bytes from an address on, and nothing else.
pub(super) struct Bytes<'a> {
    pub(super) start: u64,
    pub(super) bytes: &'a [u8],
}

impl Memory for Bytes<'_> {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Option<()> {
        let at = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let end = at.checked_add(bytes.len())?;
        bytes.copy_from_slice(self.bytes.get(at..end)?);
        Some(())
    }
}

/// Where the memory of an input begins.
pub(super) const START: u64 = 0x1000;

/// Asserts that functions, lines and positions can be read from any memory, and that names have a limit. The input: a frame,
/// and the memory.
pub(crate) fn heap(data: &[u8]) -> u64 {
    let Some((head, bytes)) = data.split_first_chunk::<24>() else {
        return 0;
    };
    let [word, bytecode, place] = [0, 8, 16].map(|at| {
        let word = head.get(at..).and_then(|it| it.first_chunk::<8>());
        word.map_or(0, |word| u64::from_le_bytes(*word))
    });
    let Some(layout) = layout(version(11, 3)) else {
        return 0;
    };
    let memory = Bytes {
        start: START,
        bytes,
    };
    let frame = V8Frame {
        shared: word,
        code: bytecode,
        place,
    };
    // The same words as those of a frame on the stack.
    let on_stack = FrameWords::read(40, place, |address| match address {
        0 => Some(place),
        8 => Some(bytecode),
        _ => Some(word),
    });
    let recognized = on_stack.and_then(|it| super::frame(&memory, &layout, it));
    let is_recognized = recognized.is_some_and(|it| shared(it.shared).0 != 0);
    let places = places(&memory, &layout, &frame);
    assert!((1..=65).contains(&places.len()));
    let position = places.first().and_then(|place| place.position);
    let mut seen = u64::from(position.is_some())
        + 4096 * places.len() as u64
        + (u64::from(is_recognized) << 32);
    // Any cookie would do, but an input that has the right one by chance is rare.
    let (object, _) = shared(word);
    let cookie = super::names::cookie_of(&memory, &layout, object);
    let Some(found) = function(&memory, &layout, object, cookie.unwrap_or(0)) else {
        return seen;
    };
    seen += 2;
    if let Found::Named(named) = found {
        assert!(named.name.chars().count() <= 1025);
        assert!(named.script.name.chars().count() <= 1025);
        assert!(!named.name.is_empty());
        seen += 4 + 8 * named.name.len().min(15) as u64 + 128 * u64::from(named.start.is_some());
        if let Some(lines) = lines_of(&memory, &named.script) {
            let line = lines.line(position.or(named.start).unwrap_or(0));
            assert!((1..=lines.count() as u32).contains(&line));
            seen += 256 * u64::from(line.min(15));
        }
    }
    seen
}

/// Asserts that V8 in a file, if the file holds it, is sound, and that its short form gives the same one.
pub(crate) fn file(data: &[u8]) -> u64 {
    let Some(found) = find(data) else {
        return u64::from(data.starts_with(b"\x7fELF"));
    };
    assert!(is_sound(&found), "{found:?}");
    assert_eq!(from_words(to_words(&found)), Some(found));
    2 + u64::from(found.version)
}

/// Decodes an answer of the reader; 0 if it is refused.
pub(crate) fn answer(answer: &[u8]) -> u64 {
    match decode::<Option<u32>>(answer) {
        Some(Some(_)) => 2,
        Some(None) => 1,
        None => 0,
    }
}
