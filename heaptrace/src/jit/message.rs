//! The messages between the tracer and a reader about a file with names of generated code.
//!
//! Part of `jit`. Plain values that two processes exchange. The tracer checks an answer: a hostile file may have taken over the
//! reader.

use serde::{Deserialize, Serialize};

/// Bytes of a file that one question covers.
pub(super) const PIECE_BYTES: usize = 256 << 10;

/// Longest name of a function, and longest path of its source file.
pub(super) const MAX_NAME: usize = 1 << 10;

/// Most lines of one function.
pub(super) const MAX_LINES: usize = 4096;

/// Most source files of one function.
pub(super) const MAX_FILES: usize = 64;

/// Longest record of a jitdump file.
const MAX_RECORD: u64 = u32::MAX as u64;

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// Text, with a line for each function.
    PerfMap,
    /// Records, in perf's format for compilers.
    Jitdump,
}

/// How far a file was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The offset of the next piece.
    pub offset: u64,
    /// Whether the next piece begins inside of a line that is too long.
    pub skips_line: bool,
}

/// A question about a file.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Question {
    pub(super) format: Format,
    pub(super) from: Position,
}

/// What a piece of a file contains.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// What it says, in its order.
    pub changes: Vec<Change>,
    /// Where the next piece begins. The same position as before if no more can be read now.
    pub next: Position,
    /// Lines or records that are not valid.
    pub broken: u64,
    /// Whether nothing of the file can be read any more: it is of another byte order, or no such file at all.
    pub is_refused: bool,
}

/// One statement of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// A function was made.
    Loaded(Code),
    /// A function was moved.
    Moved {
        /// Its address before.
        from: u64,
        /// Its address after.
        to: u64,
        /// When that was, as the time of a function.
        time: u64,
    },
    /// The lines of the next function that is made at an address.
    Lines(DebugLines),
}

/// A function that was generated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Code {
    /// Its address.
    pub start: u64,
    /// The first address after it.
    pub end: u64,
    /// When it was made, on the clock of events; 0 if the file does not say.
    pub time: u64,
    /// Its name; raw.
    pub name: String,
    /// Its source file; raw, empty if it is unknown.
    pub file: String,
    /// Its first line, 0 if it is unknown.
    pub line: u32,
    /// What the file has added to the offsets of its lines.
    pub lines_shift: u32,
}

/// The lines of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DebugLines {
    /// The address of the function.
    pub start: u64,
    /// Source files; raw.
    pub files: Vec<String>,
    /// The lines, by offset.
    pub lines: Vec<LineFrom>,
}

/// The line of the code from an offset on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineFrom {
    /// The offset in the function.
    pub offset: u32,
    /// The line.
    pub line: u32,
    /// The index of its source file.
    pub file: u16,
}

impl Piece {
    /// The piece, if it can be an answer to this question.
    pub(super) fn checked(self, question: &Question) -> Option<Self> {
        let Question { format, from } = question;
        let read = self.next.offset.checked_sub(from.offset)?;
        let most = match format {
            Format::PerfMap => PIECE_BYTES as u64,
            Format::Jitdump => PIECE_BYTES as u64 + MAX_RECORD,
        };
        let is_sound = read <= most
            && self.broken <= PIECE_BYTES as u64
            && self.changes.len() <= PIECE_BYTES
            && self.changes.iter().all(Change::is_sound);
        is_sound.then_some(self)
    }
}

impl Change {
    fn is_sound(&self) -> bool {
        match self {
            Self::Loaded(code) => {
                code.start < code.end && code.name.len() <= MAX_NAME && code.file.len() <= MAX_NAME
            }
            Self::Moved { .. } => true,
            Self::Lines(lines) => {
                let files = lines.files.len();
                lines.lines.len() <= MAX_LINES
                    && files <= MAX_FILES
                    && lines.files.iter().all(|file| file.len() <= MAX_NAME)
                    && lines.lines.iter().all(|it| usize::from(it.file) < files)
                    && lines.lines.is_sorted_by_key(|it| it.offset)
            }
        }
    }
}
