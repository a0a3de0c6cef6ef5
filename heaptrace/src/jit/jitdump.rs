//! Parses jitdump files: a header, and a record for each function that a runtime made, moved, or has lines of.
//!
//! Part of `jit`. Runs in a reader. The format is described in the kernel's sources, as `jitdump-specification.txt`.

use super::message::{Change, Code, DebugLines, LineFrom, MAX_FILES, MAX_LINES, Piece, Position};
use super::name::{cut, parts};

/// The first word of a file whose byte order is this machine's.
const MAGIC: u32 = 0x4a69_5444;

/// Bytes of the shortest header.
const HEADER: usize = 40;

/// Bytes at the beginning of each record: its kind, its length, and its time.
const RECORD: usize = 16;

/// The kinds of records.
const LOAD: u32 = 0;
const MOVE: u32 = 1;
const DEBUG_INFO: u32 = 2;
const CLOSE: u32 = 3;

/// The distance between an address in V8's records of lines and the code: V8 allows for a header of the file that perf makes.
const V8_SHIFT: u32 = 0x40;

/// The largest offset of a line in its function.
const MAX_OFFSET: u32 = 1 << 26;

/// Stands for the name of the file before.
const SAME_FILE: &[u8] = b"\xff";

/// Reads the records in a part of a file that begins at a position; the file has so many bytes behind that position. A record
/// that is not written to its end waits.
pub(super) fn parse(bytes: &[u8], from: Position, left: u64) -> Piece {
    let mut piece = Piece {
        next: from,
        ..Piece::default()
    };
    let mut at = 0;
    if from.offset == 0 {
        match header(bytes).filter(|length| *length <= left) {
            Some(length) => at = length,
            None => {
                piece.is_refused = bytes.len() >= HEADER;
                return piece;
            }
        }
    }
    while let Some(record) = usize::try_from(at).ok().and_then(|at| bytes.get(at..)) {
        let Some((kind, length, time)) = record_head(record) else {
            break;
        };
        if length < RECORD as u64 {
            // The records behind it can't be found.
            piece.broken += 1;
            piece.is_refused = true;
            break;
        }
        if at.saturating_add(length) > left {
            break;
        }
        let has_all = record.len() as u64 >= length;
        // The code at the end of a record is not needed, lines and names are.
        if !has_all && at > 0 && matches!(kind, LOAD | DEBUG_INFO) {
            break;
        }
        let length_here = usize::try_from(length).unwrap_or(usize::MAX);
        let record = record.get(..length_here).unwrap_or(record);
        let body = record.get(RECORD..).unwrap_or_default();
        let change = match kind {
            LOAD => load(body, time).map(|code| Some(Change::Loaded(code))),
            MOVE => moved(body, time).map(Some),
            DEBUG_INFO => debug_lines(body).map(|lines| Some(Change::Lines(lines))),
            CLOSE => Some(None),
            // Unwind information, and what later versions have.
            _ => Some(None),
        };
        match change {
            Some(change) => piece.changes.extend(change),
            None => piece.broken += 1,
        }
        at = at.saturating_add(length);
    }
    piece.next.offset = from.offset.saturating_add(at);
    piece
}

/// The length of the header; `None` if it is not complete, or of no such file.
fn header(bytes: &[u8]) -> Option<u64> {
    let length = word(bytes, 8)?;
    let is_valid = word(bytes, 0)? == MAGIC && length as usize >= HEADER && bytes.len() >= HEADER;
    is_valid.then_some(length.into())
}

/// The kind, the length and the time of a record.
fn record_head(bytes: &[u8]) -> Option<(u32, u64, u64)> {
    Some((word(bytes, 0)?, word(bytes, 4)?.into(), long(bytes, 8)?))
}

fn load(body: &[u8], time: u64) -> Option<Code> {
    let (start, size) = (long(body, 16)?, long(body, 24)?);
    let name = until_zero(body.get(40..)?)?;
    let end = start.checked_add(size).filter(|_| size > 0)?;
    let parts = parts(name);
    Some(Code {
        start,
        end,
        time,
        name: parts.name,
        file: parts.file,
        line: parts.line,
        lines_shift: if parts.is_of_v8 { V8_SHIFT } else { 0 },
    })
}

fn moved(body: &[u8], time: u64) -> Option<Change> {
    Some(Change::Moved {
        from: long(body, 16)?,
        to: long(body, 24)?,
        time,
    })
}

fn debug_lines(body: &[u8]) -> Option<DebugLines> {
    let (start, count) = (long(body, 0)?, long(body, 8)?);
    let mut found = DebugLines {
        start,
        ..DebugLines::default()
    };
    let mut rest = body.get(16..)?;
    let mut file = None;
    for _ in 0..count.min(MAX_LINES as u64) {
        let (address, line) = (long(rest, 0)?, word(rest, 8)?);
        let name = until_zero(rest.get(16..)?)?;
        rest = rest.get(16 + name.len() + 1..)?;
        if name != SAME_FILE {
            file = file_number(&mut found.files, name);
        }
        // V8 writes names of some files that are none, with zeros in them. Nothing in such a record can be trusted.
        let offset = u32::try_from(address.checked_sub(start)?).ok()?;
        if offset > MAX_OFFSET {
            return None;
        }
        if let Some(file) = file {
            found.lines.push(LineFrom { offset, line, file });
        }
    }
    found.lines.sort_by_key(|it| it.offset);
    Some(found)
}

/// The number of a file in a list, to which it is added if there is room.
fn file_number(files: &mut Vec<String>, name: &[u8]) -> Option<u16> {
    let name = cut(&String::from_utf8_lossy(name));
    let known = files.iter().position(|it| *it == name);
    let number = known.unwrap_or(files.len());
    if known.is_none() {
        if number >= MAX_FILES {
            return None;
        }
        files.push(name);
    }
    u16::try_from(number).ok()
}

fn until_zero(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    bytes.get(..end)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*word))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    let long = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*long))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, time: u64, body: &[u8]) -> Vec<u8> {
        let length = (RECORD + body.len()) as u32;
        let head = [kind.to_le_bytes(), length.to_le_bytes()].concat();
        [&head, time.to_le_bytes().as_slice(), body].concat()
    }

    fn longs(longs: &[u64]) -> Vec<u8> {
        longs.iter().flat_map(|it| it.to_le_bytes()).collect()
    }

    fn load_of(start: u64, size: u64, name: &str) -> Vec<u8> {
        let code = vec![0x90; size as usize];
        let body = [
            &longs(&[0, 0, start, size, 1]),
            name.as_bytes(),
            &[0],
            &code,
        ]
        .concat();
        record(LOAD, 7, &body)
    }

    fn lines_of(start: u64, lines: &[(u64, u32, &[u8])]) -> Vec<u8> {
        let mut body = longs(&[start, lines.len() as u64]);
        for (address, line, file) in lines {
            body.extend(address.to_le_bytes());
            body.extend(line.to_le_bytes());
            body.extend([0; 4]);
            body.extend(*file);
            body.push(0);
        }
        record(DEBUG_INFO, 7, &body)
    }

    fn file(records: &[Vec<u8>]) -> Vec<u8> {
        let mut file = vec![0; HEADER];
        file[..4].copy_from_slice(&MAGIC.to_le_bytes());
        file[8..12].copy_from_slice(&(HEADER as u32).to_le_bytes());
        [file, records.concat()].concat()
    }

    fn read(bytes: &[u8]) -> Piece {
        parse(bytes, Position::default(), bytes.len() as u64)
    }

    /// Check that functions, moves and lines are read in their order, and that other records are passed over.
    #[test]
    fn records_are_read() {
        let records = [
            lines_of(0x1000, &[(0x1004, 9, b"a.js"), (0x1002, 8, SAME_FILE)]),
            load_of(0x1000, 16, "f"),
            record(4, 7, &[0; 24]),
            record(MOVE, 7, &longs(&[0, 0, 0x1000, 0x2000, 16, 1])),
            record(CLOSE, 7, &[]),
        ];
        let bytes = file(&records);
        let piece = read(&bytes);
        assert_eq!((piece.broken, piece.is_refused), (0, false));
        assert_eq!(piece.next.offset, bytes.len() as u64);
        let [Change::Lines(lines), Change::Loaded(code), moved] = &piece.changes[..] else {
            panic!("{piece:?}");
        };
        assert_eq!(
            (lines.start, &lines.files[..]),
            (0x1000, &["a.js".to_owned()][..])
        );
        let at: Vec<_> = lines.lines.iter().map(|it| (it.offset, it.line)).collect();
        assert_eq!(at, [(2, 8), (4, 9)]);
        assert_eq!(
            (code.start, code.end, code.time, &*code.name),
            (0x1000, 0x1010, 7, "f")
        );
        assert_eq!(
            *moved,
            Change::Moved {
                from: 0x1000,
                to: 0x2000,
                time: 7
            }
        );
    }

    /// Check that a record that is not written to its end waits, wherever it ends, and that a piece ends before a record that does not
    /// fit.
    #[test]
    fn incomplete_records_wait() {
        let first = file(&[load_of(0x1000, 16, "f")]);
        let whole = [first.clone(), load_of(0x2000, 300, "g")].concat();
        for end in first.len()..whole.len() {
            let piece = read(&whole[..end]);
            assert_eq!(
                (piece.changes.len(), piece.next.offset),
                (1, first.len() as u64)
            );
            let piece = parse(&whole[..end], Position::default(), whole.len() as u64);
            assert_eq!(
                (piece.changes.len(), piece.next.offset),
                (1, first.len() as u64)
            );
        }
        // Only the beginning of a long one is needed.
        let left = (whole.len() - first.len()) as u64;
        let from = Position {
            offset: first.len() as u64,
            ..Position::default()
        };
        let piece = parse(&whole[first.len()..][..100], from, left);
        assert_eq!(
            (piece.changes.len(), piece.next.offset),
            (1, whole.len() as u64)
        );
    }

    /// Check that a file of another byte order and one that is no such file are refused, and that broken records are counted.
    #[test]
    fn other_files_are_refused() {
        let mut other = file(&[]);
        other[..4].reverse();
        assert!(read(&other).is_refused);
        assert!(read(&[0; 4096]).is_refused);
        assert!(!read(&file(&[])[..20]).is_refused);
        let piece = read(&file(&[record(LOAD, 7, &[0; 8]), load_of(0x1000, 16, "f")]));
        assert_eq!((piece.broken, piece.changes.len()), (1, 1));
        let astray = lines_of(0x1000, &[(0x1004, 9, b"a.js"), (0x10, 8, b"b.js")]);
        let piece = read(&file(&[astray, load_of(0x1000, 16, "f")]));
        assert_eq!((piece.broken, piece.changes.len()), (1, 1));
        let endless = file(&[[0; RECORD].to_vec()]);
        assert!(read(&endless).is_refused);
    }
}
