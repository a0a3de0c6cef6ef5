//! Walks the pages of a mapping beside the pieces in it.
//!
//! Stage: output. Pages with several pieces come one by one; all others come in spans, so that the work depends on the number of runs
//! and pieces, and not on what lengths a file claims.

use super::pieces::{PAGE, Piece};
use crate::proc::residency::{PageState, Run};

/// Pages that follow each other, in one state, with the same in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span<'a> {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) state: PageState,
    pub(super) holds: Holds<'a>,
}

/// What is in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds<'a> {
    /// Nothing that was recorded.
    Nothing,
    /// One piece, which is all of the pages.
    All(&'a Piece),
    /// A page with these pieces or parts of them.
    Some(&'a [Piece]),
}

/// The pieces that begin or end between two addresses.
pub(super) fn between(pieces: &[Piece], start: u64, end: u64) -> &[Piece] {
    let first = pieces.partition_point(|it| it.end <= start);
    let last = pieces.partition_point(|it| it.start < end);
    pieces.get(first..last).unwrap_or_default()
}

/// Visits the pages of runs that begin at an address.
pub(super) fn walk<'a>(
    start: u64,
    runs: &[Run],
    pieces: &'a [Piece],
    visit: &mut impl FnMut(Span<'a>),
) {
    let mut at = start & !(PAGE - 1);
    let mut rest = pieces;
    for run in runs {
        let end = at.saturating_add(u64::from(run.pages).saturating_mul(PAGE)) & !(PAGE - 1);
        rest = walk_run(at, end, run.state, rest, visit);
        at = end;
    }
}

/// Visits pages of one state. Returns the pieces that are not before their end.
fn walk_run<'a>(
    mut at: u64,
    end: u64,
    state: PageState,
    mut pieces: &'a [Piece],
    visit: &mut impl FnMut(Span<'a>),
) -> &'a [Piece] {
    while at < end {
        pieces = pieces.get(first_after(pieces, at)..).unwrap_or_default();
        let next = pieces.first().filter(|it| it.start < end);
        let (to, holds) = match next {
            None => (end, Holds::Nothing),
            Some(piece) if piece.start >= at + PAGE => (piece.start & !(PAGE - 1), Holds::Nothing),
            Some(piece) if piece.start <= at && piece.end >= at + PAGE => {
                ((piece.end & !(PAGE - 1)).min(end), Holds::All(piece))
            }
            Some(_) => {
                let to = at + PAGE;
                let count = pieces.iter().take_while(|it| it.start < to).count();
                (to, Holds::Some(pieces.get(..count).unwrap_or_default()))
            }
        };
        visit(Span {
            start: at,
            end: to,
            state,
            holds,
        });
        at = to;
    }
    pieces
}

/// The number of pieces that end before an address. Mostly it is small.
fn first_after(pieces: &[Piece], at: u64) -> usize {
    pieces.iter().take_while(|it| it.end <= at).count()
}

#[cfg(test)]
mod tests {
    use super::super::pieces::pieces;
    use super::super::pieces::tests::block;
    use super::*;
    use crate::random::numbers;

    /// Check that random blocks take the same bytes of each page as a model of single bytes says, and that all pages are visited once.
    #[test]
    fn equals_a_model_of_bytes() {
        let mut random = numbers(11);
        for _ in 0..200 {
            let base = 0x10000;
            let mut owned = Vec::new();
            let mut at = base;
            while owned.len() < 40 {
                at += random(3_000);
                let size = match random(3) {
                    0 => random(20_000),
                    _ => random(200),
                };
                owned.push(block(at, size, 0));
                at += size;
            }
            let found = pieces(&owned, None);
            let states = PageState::ALL;
            let runs: Vec<Run> = (0..8)
                .map(|_| Run {
                    pages: random(6) as u32,
                    state: states[random(5) as usize],
                })
                .collect();
            let all: u64 = runs.iter().map(|it| u64::from(it.pages)).sum();
            let mut seen = Vec::new();
            walk(base, &runs, &found, &mut |span| {
                for page in (span.start..span.end).step_by(PAGE as usize) {
                    let taken = match span.holds {
                        Holds::Nothing => 0,
                        Holds::All(_) => PAGE,
                        Holds::Some(some) => some
                            .iter()
                            .map(|it| it.end.min(page + PAGE) - it.start.max(page))
                            .sum(),
                    };
                    seen.push((page, span.state, taken));
                }
            });
            let mut states = runs
                .iter()
                .flat_map(|it| std::iter::repeat_n(it.state, it.pages as usize));
            assert_eq!(seen.len() as u64, all);
            for (at, (page, state, taken)) in seen.iter().enumerate() {
                assert_eq!(*page, base + at as u64 * PAGE);
                assert_eq!(Some(*state), states.next());
                let is_taken = |byte: &u64| {
                    let mut blocks = owned.iter();
                    blocks.any(|it| it.address <= *byte && *byte < it.address + it.size)
                };
                let expected = (*page..*page + PAGE).filter(is_taken).count();
                assert_eq!(*taken, expected as u64, "page {page:x}");
            }
        }
    }

    /// Check that lengths that no process has take no time: a file can claim anything.
    #[test]
    fn claimed_lengths_cost_nothing() {
        let found = pieces(&[block(0x1000, u64::MAX, 0)], None);
        let runs = vec![
            Run {
                pages: u32::MAX,
                state: PageState::Resident,
            };
            2_000
        ];
        let mut spans = 0;
        walk(u64::MAX - 0x3000, &runs, &found, &mut |_| spans += 1);
        walk(0x1000, &runs, &found, &mut |_| spans += 1);
        assert!(spans < 10_000, "{spans}");
    }
}
