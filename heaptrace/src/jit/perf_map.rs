//! Parses perf maps: `START SIZE NAME` in each line, the numbers in hexadecimal.
//!
//! Part of `jit`. Runs in a reader.

use super::message::{Change, Code, PIECE_BYTES, Piece, Position};
use super::name::parts;

/// Reads the lines in a part of a file that begins at a position. A line without an end is left for the next piece.
pub(super) fn parse(bytes: &[u8], from: Position) -> Piece {
    let mut piece = Piece {
        next: from,
        ..Piece::default()
    };
    let mut rest = bytes;
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let (line, behind) = rest.split_at(end);
        if !std::mem::take(&mut piece.next.skips_line) {
            add(line, &mut piece);
        }
        rest = behind.get(1..).unwrap_or_default();
    }
    let mut used = bytes.len() - rest.len();
    if used == 0 && bytes.len() >= PIECE_BYTES {
        // No function has so long a name.
        piece.broken += u64::from(!piece.next.skips_line);
        piece.next.skips_line = true;
        used = bytes.len();
    }
    piece.next.offset = from.offset.saturating_add(used as u64);
    piece
}

fn add(line: &[u8], piece: &mut Piece) {
    let line = line.trim_ascii();
    if line.is_empty() {
        return;
    }
    match parse_line(line) {
        Some(code) => piece.changes.push(Change::Loaded(code)),
        None => piece.broken += 1,
    }
}

fn parse_line(line: &[u8]) -> Option<Code> {
    let (start, rest) = number(line)?;
    let (size, rest) = number(rest)?;
    let name = rest.trim_ascii();
    let end = start.checked_add(size)?;
    if size == 0 || name.is_empty() {
        return None;
    }
    let parts = parts(name);
    Some(Code {
        start,
        end,
        time: 0,
        name: parts.name,
        file: parts.file,
        line: parts.line,
        lines_shift: 0,
    })
}

/// The hexadecimal number at the beginning of a text, and the rest behind it.
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let text = text.trim_ascii_start();
    let end = text.iter().position(u8::is_ascii_whitespace)?;
    let (digits, rest) = text.split_at(end);
    let digits = digits
        .strip_prefix(b"0x")
        .or_else(|| digits.strip_prefix(b"0X"))
        .unwrap_or(digits);
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let number = u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    Some((number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(piece: &Piece) -> Vec<(u64, u64, &str)> {
        let mut names = Vec::new();
        for change in &piece.changes {
            match change {
                Change::Loaded(code) => names.push((code.start, code.end, code.name.as_str())),
                other => panic!("{other:?}"),
            }
        }
        names
    }

    /// Check that lines are read with and without `0x` and with ends of both kinds, that broken ones are counted, and that a line
    /// without an end waits.
    #[test]
    fn lines_are_read() {
        let text = b"10 8 f\n0x20 0X10 g with blanks \r\n\nnonsense\n30 0 empty\nffffffffffffffff 2 far\n40 8\n50 8 h";
        let piece = parse(text, Position::default());
        assert_eq!(
            names(&piece),
            [(0x10, 0x18, "f"), (0x20, 0x30, "g with blanks")]
        );
        assert_eq!(piece.broken, 4);
        let offset = piece.next.offset as usize;
        assert_eq!(&text[offset..], b"50 8 h");
        let rest = [&text[offset..], b"\n"].concat();
        assert_eq!(names(&parse(&rest, piece.next)), [(0x50, 0x58, "h")]);
    }

    /// Check that a line that is longer than a piece is skipped and counted once, and that the lines behind it are read.
    #[test]
    fn long_lines_are_skipped() {
        let mut position = Position::default();
        let mut broken = 0;
        for _ in 0..3 {
            let piece = parse(&vec![b'a'; PIECE_BYTES], position);
            (position, broken) = (piece.next, broken + piece.broken);
        }
        let piece = parse(b"aa\n10 8 f\n", position);
        assert_eq!(names(&piece), [(0x10, 0x18, "f")]);
        assert_eq!((broken, piece.broken), (1, 0));
        assert_eq!(piece.next.offset, 3 * PIECE_BYTES as u64 + 10);
    }
}
