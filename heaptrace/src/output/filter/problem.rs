//! What is wrong with an expression, with the place marked below it.
//!
//! Stage: output. Must not know the language.

use std::fmt;
use std::ops::Range;

use crate::text::is_unsafe;

/// A part of an expression, in characters from its beginning.
pub(super) type Place = Range<usize>;

/// Most characters of an expression that are shown.
const WIDTH: usize = 72;

/// Characters that are shown before the place, at least.
const BEFORE: usize = 24;

/// What is wrong with an expression, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    why: String,
    /// The expression around the place, safe to print.
    line: String,
    /// The place in that line.
    place: Place,
}

impl Problem {
    pub(super) fn new(text: &[char], place: &Place, why: impl Into<String>) -> Self {
        // Each character stands for one, so that the place stays right.
        let shown = |c: &char| match *c {
            '\n' | '\t' | '\r' => ' ',
            c if is_unsafe(c) => '?',
            c => c,
        };
        let start = match text.len() {
            0..=WIDTH => 0,
            length => place.start.saturating_sub(BEFORE).min(length - WIDTH),
        };
        let end = text.len().min(start + WIDTH);
        let mut line: String = text
            .get(start..end)
            .unwrap_or_default()
            .iter()
            .map(shown)
            .collect();
        let mut at = place.start.saturating_sub(start);
        if start > 0 {
            line.insert(0, '…');
            at += 1;
        }
        let length = place.len().min(end.saturating_sub(place.start)).max(1);
        if end < text.len() {
            line.push('…');
        }
        Self {
            why: why.into(),
            line,
            place: at..at + length,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { why, line, place } = self;
        let (spaces, carets) = (" ".repeat(place.start), "^".repeat(place.len()));
        write!(f, "{why}\n    {line}\n    {spaces}{carets}")
    }
}

impl std::error::Error for Problem {}
