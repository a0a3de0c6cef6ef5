//! Properties that must hold for every file with names of generated code.
//!
//! Part of `jit`.

use super::code_map::{CodeMap, Room};
use super::message::{Format, Piece, Position, Question};
use super::{jitdump, perf_map};
use crate::reader::{decode, encode};

/// Asserts that a perf map, read in two pieces, gives answers that pass the tracer's checks. The input: where the second piece
/// begins, in two bytes, and the file.
pub(crate) fn perf_map(data: &[u8]) -> u64 {
    check(data, Format::PerfMap)
}

/// The same for a jitdump file.
pub(crate) fn jitdump(data: &[u8]) -> u64 {
    check(data, Format::Jitdump)
}

fn check(data: &[u8], format: Format) -> u64 {
    const ROOM: Room = Room {
        functions: 64,
        bytes: 4 << 10,
    };
    let Some((cut, file)) = data.split_first_chunk::<2>() else {
        return 0;
    };
    let cut = usize::from(u16::from_le_bytes(*cut)).min(file.len());
    let mut map = CodeMap::default();
    let mut position = Position::default();
    let mut seen = 0;
    for end in [cut, file.len()] {
        let begin = usize::try_from(position.offset).unwrap_or(usize::MAX);
        let bytes = file.get(begin.min(end)..end).unwrap_or_default();
        let piece = match format {
            Format::PerfMap => perf_map::parse(bytes, position),
            Format::Jitdump => jitdump::parse(bytes, position, bytes.len() as u64),
        };
        let question = Question {
            format,
            from: position,
        };
        let piece = piece.checked(&question);
        assert!(piece.is_some());
        let Some(piece) = piece else {
            return 0;
        };
        assert!(piece.next.offset <= end as u64);
        assert!(decode::<Piece>(&encode(&piece)).as_ref() == Some(&piece));
        let kinds = piece.changes.len().min(15) as u64;
        seen = seen << 8 | kinds << 4 | piece.broken.min(7) << 1 | u64::from(piece.is_refused);
        position = piece.next;
        for change in piece.changes {
            let loaded = map.change(change, ROOM);
            if let Some((start, end)) = loaded.range {
                assert!([start, end - 1].iter().all(|it| map.find(*it, 0).is_some()));
            }
        }
    }
    assert!(map.len() <= 4 * ROOM.functions + 1024);
    1 + seen
}

/// Checks a reader's answer about a piece of a file that ends where the answer says.
pub(crate) fn answer(answer: &[u8]) -> u64 {
    let Some(piece) = decode::<Piece>(answer) else {
        return 0;
    };
    let question = Question {
        format: Format::Jitdump,
        from: piece.next,
    };
    let piece = piece.checked(&question);
    piece.map_or(0, |piece| 1 + piece.changes.len() as u64)
}
