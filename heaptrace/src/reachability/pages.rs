//! Finds the words of a page in what was read, by its address.
//!
//! Part of `reachability`. A page can have been read several times: the last time counts.

use super::words::{PAGE, Piece};

/// The pages that were read.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pieces: Vec<Piece>,
    /// Their addresses, each with the piece that has it, and its place in that.
    table: Vec<(u64, u32, u32)>,
}

impl Pages {
    /// The pages of some pieces. Pages of later pieces replace those of earlier ones.
    pub(super) fn new(pieces: Vec<Piece>) -> Self {
        let mut table = Vec::new();
        for (number, piece) in (0..).zip(&pieces) {
            table.extend(
                (0..)
                    .zip(&piece.pages)
                    .map(|(at, page)| (*page, number, at)),
            );
        }
        table.sort_unstable();
        let mut last = Vec::with_capacity(table.len());
        let mut rows = table.into_iter().peekable();
        while let Some(row) = rows.next() {
            if rows
                .peek()
                .is_none_or(|next: &(u64, u32, u32)| next.0 != row.0)
            {
                last.push(row);
            }
        }
        Self {
            pieces,
            table: last,
        }
    }

    /// Calls something with each kept word between two addresses, and the address at which it is.
    pub(super) fn words(&self, start: u64, end: u64, mut word_found: impl FnMut(u64, u64)) {
        let first = start & !(PAGE - 1);
        let from = self.table.partition_point(|it| it.0 < first);
        let rows = self.table.get(from..).unwrap_or_default();
        for (_, piece, index) in rows.iter().take_while(|it| it.0 < end) {
            if let Some(piece) = self.pieces.get(*piece as usize) {
                for (at, word) in piece.words(*index as usize, start, end) {
                    word_found(at, word);
                }
            }
        }
    }
}
