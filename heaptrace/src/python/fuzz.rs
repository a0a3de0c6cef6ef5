//! Properties that must hold for the interpreter in every file, and for every line table and string.
//!
//! Part of `python`.

use gimli::BaseAddresses;
use heaptrace_common::limits::PYTHON_LINES_BYTES;
use heaptrace_common::wire::{PythonImage, PythonText};

use super::{Frames, find, from_words, is_sound, line, text, to_words};

/// Room for the text of an input.
const TEXT_BYTES: usize = 16;

/// Asserts that each instruction of a function has a line, and that a string has at most as many characters as there is room
/// for. The input: a byte for the version, the first line, and a table of lines; then it is read as a string.
pub(crate) fn code(data: &[u8]) -> u64 {
    let Some(([minor, first_line @ ..], lines)) = data.split_first_chunk::<5>() else {
        return 0;
    };
    let minor = u16::from(*minor);
    let first_line = i32::from_le_bytes(*first_line);
    let lines = lines.get(..PYTHON_LINES_BYTES).unwrap_or(lines);
    let instructions = [-1, 0, 2, 30, 100, 1000, i32::MAX, i32::MIN];
    let found = instructions.map(|at| line(minor, first_line, lines, at));
    assert_eq!(found.first(), found.last());
    let first = u32::try_from(first_line).unwrap_or(0);
    assert_eq!(found.first(), Some(&first));
    let distance = |line: &u32| u64::from(line.abs_diff(first).min(15));
    let reached = found.iter().fold(0, |sum, line| sum * 16 + distance(line));
    1 + reached * 64 + string(data)
}

fn string(data: &[u8]) -> u64 {
    let Some(([width, characters, ..], rest)) = data.split_first_chunk::<5>() else {
        return 0;
    };
    let mut bytes = [0; TEXT_BYTES];
    for (to, from) in bytes.iter_mut().zip(rest) {
        *to = *from;
    }
    let sent = PythonText {
        width: (*width).into(),
        characters: (*characters).into(),
        bytes,
    };
    let text = text(&sent);
    let count = text.chars().count();
    assert!(count <= usize::from(*characters).min(TEXT_BYTES) + 1);
    let has = |c| u64::from(text.contains(c));
    count as u64 + 32 * has(char::REPLACEMENT_CHARACTER)
}

/// Asserts that the interpreter in a file, if it has one, is sound, and that its short form gives the same one. The input: a
/// file, and the offset of its `.eh_frame` in two bytes.
pub(crate) fn file(data: &[u8]) -> u64 {
    let Some((data, begin)) = data.split_last_chunk::<2>() else {
        return 0;
    };
    let begin = u16::from_le_bytes(*begin);
    let bases = BaseAddresses::default().set_eh_frame(begin.into());
    let frames = data.get(usize::from(begin)..).map(|eh_frame| Frames {
        eh_frame,
        bases: &bases,
    });
    let Some(found) = find(data, frames) else {
        return u64::from(data.starts_with(b"\x7fELF"));
    };
    image(&found);
    let [_, cold] = found.loops;
    let is_musl = found.layout.thread_data;
    2 + u64::from(found.layout.minor) * 4 + u64::from(is_musl) * 2 + u64::from(cold != [0, 0])
}

/// Asserts that an interpreter is sound, and that its short form gives the same one.
pub(crate) fn image(image: &PythonImage) {
    assert!(is_sound(image), "{image:?}");
    assert_eq!(from_words(to_words(image)).as_ref(), Some(image));
}
