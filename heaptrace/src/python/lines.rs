//! Decodes line tables of code objects.
//!
//! Part of `python`. A table is untrusted, and may be cut. The formats are CPython's `Objects/lnotab_notes.txt` (to 3.10) and
//! `Objects/locations.md` (from 3.11).

use heaptrace_common::limits::PYTHON_LINES_BYTES;

/// The line of an instruction of a function, by the function's first line and line table.
///
/// `instruction` is the position as a frame of that version has it: bytes, except in 3.10, where it is a number of
/// instructions. It is negative if the frame has not begun. The result is the function's first line if the frame has not
/// begun, if the table has no line for the instruction, or if the table was cut before it.
pub fn line(minor: u16, first_line: i32, lines: &[u8], instruction: i32) -> u32 {
    let first = i64::from(first_line);
    let found = u64::try_from(instruction).ok().and_then(|at| match minor {
        ..=9 => by_pairs(first, lines, at),
        10 => by_ranges(first, lines, at * 2),
        11.. => by_locations(first, lines, at),
    });
    let valid = |line: i64| u32::try_from(line).ok();
    found.and_then(valid).or(valid(first)).unwrap_or(0)
}

/// To 3.9: pairs of a step in the code and a step of the line.
fn by_pairs(first: i64, lines: &[u8], at: u64) -> Option<i64> {
    let (mut end, mut line) = (0, first);
    for [step, line_step] in lines.as_chunks::<2>().0 {
        end += u64::from(*step);
        if end > at {
            return Some(line);
        }
        line += i64::from(*line_step as i8);
    }
    // The last line lasts until the end of the function, unless the table goes on.
    (lines.len() < PYTHON_LINES_BYTES).then_some(line)
}

/// 3.10: pairs of the length of a range and its difference in lines.
fn by_ranges(first: i64, lines: &[u8], at: u64) -> Option<i64> {
    const NO_LINE: i8 = i8::MIN;
    let (mut end, mut line) = (0, first);
    for [length, line_step] in lines.as_chunks::<2>().0 {
        let line_step = *line_step as i8;
        if line_step != NO_LINE {
            line += i64::from(line_step);
        }
        end += u64::from(*length);
        if end > at {
            return (line_step != NO_LINE).then_some(line);
        }
    }
    None
}

/// From 3.11: entries of different lengths, each of which begins with a byte whose highest bit is set.
fn by_locations(first: i64, lines: &[u8], at: u64) -> Option<i64> {
    let mut bytes = lines.iter().copied();
    let (mut end, mut line) = (0, first);
    while let Some(head) = bytes.next() {
        let has_line = match head >> 3 & 15 {
            // Columns in one byte.
            0..=9 => bytes.next().map(|_| 0),
            // Columns in two bytes.
            step @ 10..=12 => bytes.nth(1).map(|_| i64::from(step) - 10),
            // No columns.
            13 => signed(&mut bytes),
            14 => {
                let step = signed(&mut bytes);
                // The last line, and the columns.
                for _ in 0..3 {
                    unsigned(&mut bytes)?;
                }
                step
            }
            _ => None,
        };
        line = line.saturating_add(has_line.unwrap_or(0));
        // The length is in units of two bytes.
        end += u64::from(head & 7) * 2 + 2;
        if end > at {
            return has_line.map(|_| line);
        }
    }
    None
}

/// A number in pieces of six bits, the lowest first. Bits beyond 32 are ignored.
fn unsigned(bytes: &mut impl Iterator<Item = u8>) -> Option<u32> {
    const MORE: u8 = 0x40;
    let (mut number, mut shift) = (0, 0);
    loop {
        let byte = bytes.next()?;
        let piece = u32::from(byte & 0x3f);
        number |= piece.checked_shl(shift).unwrap_or(0);
        shift += 6;
        if byte & MORE == 0 {
            return Some(number);
        }
    }
}

/// A number whose lowest bit is its sign.
fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let number = unsigned(bytes)?;
    let size = i64::from(number >> 1);
    Some(if number & 1 == 0 { size } else { -size })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a frame that has not begun has its function's first line in every version.
    #[test]
    fn the_first_line_comes_first() {
        for minor in 8..=13 {
            assert_eq!(line(minor, 7, &[0, 9, 200, 9], -1), 7);
            assert_eq!(line(minor, 7, &[0, 9, 200, 9], i32::MIN), 7);
        }
    }

    /// Check that a table that ends before the instruction gives the first line, and that in old versions the last line
    /// lasts to the end of the function.
    #[test]
    fn a_cut_table_gives_the_first_line() {
        let cut = [2, 1].repeat(PYTHON_LINES_BYTES / 2);
        for minor in 8..=10 {
            assert_eq!(line(minor, 7, &cut, i32::MAX), 7);
        }
        assert_eq!(line(9, 7, &cut[..4], i32::MAX), 9);
        assert_eq!(line(10, 7, &cut[..4], 1), 9);
        assert_eq!(line(10, 7, &cut[..4], 2), 7);
        let cut = [0x80 | 11 << 3, 0, 0].repeat(20);
        assert_eq!(line(11, 7, &cut, 38), 27);
        assert_eq!(line(11, 7, &cut, 40), 7);
        assert_eq!(line(11, 7, &cut[..59], 38), 7);
    }

    /// Check that lines below zero and beyond 32 bits give the first line, and that no table overflows.
    #[test]
    fn extreme_lines_do_no_harm() {
        let down = [0x80 | 13 << 3, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x3f].repeat(1000);
        for first in [i32::MIN, -1, 0, 5, i32::MAX] {
            let first_line = u32::try_from(first).unwrap_or(0);
            assert_eq!(line(12, first, &down, 2000), first_line);
        }
        assert_eq!(line(8, 5, &[0, 0x80, 2, 0], 0), 5);
    }
}
