//! Asks a reader for a piece of a file.
//!
//! Part of `jit`. The tracer's side; must not parse files.

use std::fs::File;

use super::message::{Format, Piece, Position, Question};
use crate::reader::{Job, Reader, Unreadable};

/// Reads the piece of a file that begins at a position. `name` names the file in reports.
pub fn read_piece(
    reader: &mut Reader,
    name: &str,
    file: &File,
    format: Format,
    from: Position,
) -> Result<Piece, Unreadable> {
    let question = Question { format, from };
    let piece: Piece = reader.ask(Job::GeneratedCode, &question, name, &[file])?;
    piece.checked(&question).ok_or(Unreadable::Nonsense)
}
