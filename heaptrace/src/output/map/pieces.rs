//! The pieces of an address space that recorded memory takes: blocks with their headers and rounding, and memory that programs mapped.
//!
//! Stage: output. Knows nothing of pages.

use crate::join::{Family, Kind, StackId};

/// The bytes of a page.
pub(super) const PAGE: u64 = 4096;

/// Memory that was recorded and not freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owned {
    /// Its address.
    pub address: u64,
    /// Requested bytes.
    pub size: u64,
    /// The stack that allocated it.
    pub stack: StackId,
    /// Whether it is a block of an allocator, or was mapped by the program.
    pub kind: Kind,
    /// When, nanoseconds since the run began; 0 if that is not known.
    pub born_ns: u64,
    /// The mean bytes between samples when it was sampled; at most 1 if every allocation was recorded.
    pub mean: u64,
}

/// What a block takes: its header, the requested bytes, and what its size is rounded up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Where the header begins.
    pub(super) start: u64,
    /// Where the requested bytes begin.
    pub(super) address: u64,
    /// Where they end.
    pub(super) requested_end: u64,
    /// Where the rounding ends.
    pub(super) end: u64,
    /// Its place in the list that the pieces were made of.
    pub(super) owned: usize,
}

/// Makes pieces of blocks, in the order of addresses. None overlaps another one, whatever the list says.
pub(super) fn pieces(owned: &[Owned], family: Option<Family>) -> Vec<Piece> {
    let header = header(family);
    let mut pieces: Vec<Piece> = (0..)
        .zip(owned)
        .filter(|(_, it)| it.size > 0 || it.kind == Kind::Heap)
        .map(|(at, it)| {
            let (header, waste) = match it.kind {
                Kind::Heap => (header, family.map_or(0, |family| family.waste(it.size))),
                Kind::Mapped => (0, it.size.wrapping_neg() % PAGE),
            };
            let requested_end = it.address.saturating_add(it.size);
            Piece {
                start: it.address.saturating_sub(header),
                address: it.address,
                requested_end,
                end: requested_end.saturating_add(waste),
                owned: at,
            }
        })
        .collect();
    pieces.sort_unstable_by_key(|it| (it.start, it.owned));
    let is_mapped = |it: &Piece| {
        owned
            .get(it.owned)
            .is_some_and(|it| it.kind == Kind::Mapped)
    };
    drop_arenas(&mut pieces, is_mapped);
    // A block is where the next one begins: that of a free that was not seen is older.
    let mut next = u64::MAX;
    for piece in pieces.iter_mut().rev() {
        piece.end = piece.end.min(next);
        piece.requested_end = piece.requested_end.min(piece.end);
        piece.address = piece.address.min(piece.end);
        next = next.min(piece.start);
    }
    pieces.retain(|it| it.start < it.end);
    pieces
}

/// Drops memory that a program mapped and that holds blocks: it is the arena of an allocator, and the blocks count.
fn drop_arenas(pieces: &mut Vec<Piece>, is_mapped: impl Fn(&Piece) -> bool) {
    let mut arenas = Vec::new();
    let mut open: Option<Piece> = None;
    for piece in pieces.iter() {
        if is_mapped(piece) {
            open = Some(*piece);
        } else if let Some(arena) = open.filter(|arena| piece.start < arena.end) {
            arenas.push(arena.owned);
            open = None;
        }
    }
    if !arenas.is_empty() {
        arenas.sort_unstable();
        pieces.retain(|it| arenas.binary_search(&it.owned).is_err());
    }
}

/// Bytes of an allocator before each block.
pub(super) fn header(family: Option<Family>) -> u64 {
    match family {
        // The size of the chunk. The word before it is a part of the chunk before, and usable there.
        Some(Family::Glibc) => 8,
        Some(Family::Jemalloc | Family::Tcmalloc | Family::Mimalloc) | None => 0,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A block of a stack, for tests.
    pub(in crate::output::map) fn block(address: u64, size: u64, stack: u32) -> Owned {
        Owned {
            address,
            size,
            stack: StackId(stack),
            kind: Kind::Heap,
            born_ns: 0,
            mean: 0,
        }
    }

    /// Memory that a program mapped, for tests.
    pub(in crate::output::map) fn mapped(address: u64, size: u64, stack: u32) -> Owned {
        Owned {
            kind: Kind::Mapped,
            ..block(address, size, stack)
        }
    }

    /// Check that a block of glibc has its header before it and its rounding behind it, and that a block has at least the smallest size.
    #[test]
    fn blocks_have_headers_and_rounding() {
        let of = |size| {
            let found = pieces(&[block(0x1010, size, 0)], Some(Family::Glibc));
            let it = found[0];
            (
                it.address - it.start,
                it.requested_end - it.address,
                it.end - it.requested_end,
            )
        };
        assert_eq!(of(100), (8, 100, 4));
        assert_eq!(of(1), (8, 1, 23));
        assert_eq!(of(0), (8, 0, 24));
        let plain = pieces(&[block(0x1010, 100, 0)], None);
        assert_eq!((plain[0].start, plain[0].end), (0x1010, 0x1010 + 100));
    }

    /// Check that pieces are in order and don't overlap, also if the blocks do, and that no number overflows.
    #[test]
    fn pieces_never_overlap() {
        let blocks = [
            block(u64::MAX - 3, u64::MAX, 0),
            block(0x1000, 1 << 40, 1),
            block(0x2000, 16, 2),
            block(0x2000, 64, 3),
            block(0x2008, 64, 4),
            block(0, 8, 5),
        ];
        let found = pieces(&blocks, Some(Family::Glibc));
        assert!(found.len() >= 4, "{found:?}");
        for pair in found.windows(2) {
            assert!(pair[0].end <= pair[1].start, "{pair:?}");
        }
        for it in &found {
            assert!(it.start <= it.address && it.address <= it.requested_end);
            assert!(it.requested_end <= it.end && it.start < it.end);
        }
    }

    /// Check that mapped memory with blocks in it is an arena, and that other mapped memory stays.
    #[test]
    fn arenas_are_no_pieces() {
        let owned = [
            mapped(0x10000, 0x8000, 0),
            block(0x12000, 64, 1),
            block(0x13000, 64, 1),
            mapped(0x20000, 0x8000, 2),
            block(0x30000, 64, 3),
        ];
        let found = pieces(&owned, None);
        let stacks: Vec<_> = found.iter().map(|it| owned[it.owned].stack.0).collect();
        assert_eq!(stacks, [1, 1, 2, 3]);
    }
}
