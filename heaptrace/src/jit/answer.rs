//! Reads a piece of a file, for the tracer.
//!
//! Part of `jit`. Runs in a reader.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use super::message::{Format, PIECE_BYTES, Piece, Question};
use super::{jitdump, perf_map};
use crate::reader::{decode, encode};

/// Answers a question about a file.
pub(crate) fn answer(question: &[u8], files: &[File]) -> Vec<u8> {
    let (Some(question), Some(file)) = (decode::<Question>(question), files.first()) else {
        return Vec::new();
    };
    encode(&read(&question, file).unwrap_or_else(|_| Piece {
        next: question.from,
        ..Piece::default()
    }))
}

fn read(question: &Question, file: &File) -> io::Result<Piece> {
    let from = question.from;
    let left = file.metadata()?.len().saturating_sub(from.offset);
    let mut bytes = vec![0; PIECE_BYTES.min(usize::try_from(left).unwrap_or(PIECE_BYTES))];
    let mut length = 0;
    while let Some(room) = bytes.get_mut(length..).filter(|room| !room.is_empty()) {
        match file.read_at(room, from.offset.saturating_add(length as u64)) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(length);
    Ok(match question.format {
        Format::PerfMap => perf_map::parse(&bytes, from),
        Format::Jitdump => jitdump::parse(&bytes, from, left),
    })
}
