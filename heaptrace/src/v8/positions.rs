//! Decodes V8's tables of source positions.
//!
//! Part of `v8`. The table is untrusted. Must not know where it comes from.

/// A place in source: the position, in characters, and the number of the inlining that it is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) at: u32,
    pub(super) inlining: Option<u32>,
}

impl Position {
    /// The position in a packed form: a bit for code outside, the position plus one, and the number of the inlining plus one.
    pub(super) fn unpack(packed: i64) -> Option<Self> {
        const BITS: i64 = (1 << 30) - 1;
        const INLINING_BITS: i64 = (1 << 16) - 1;
        let is_outside = packed & 1 != 0;
        let at = u32::try_from(packed >> 1 & BITS).ok()?.checked_sub(1)?;
        let inlining = u32::try_from(packed >> 31 & INLINING_BITS).ok()?;
        (!is_outside).then_some(Self {
            at,
            inlining: inlining.checked_sub(1),
        })
    }
}

/// The position that belongs to an offset in bytecode or compiled code; `None` if the table has none. Each entry holds up to the
/// next one.
pub(super) fn position(table: &[u8], offset: u64) -> Option<Position> {
    let offset = i64::try_from(offset).ok()?;
    let mut bytes = table.iter().copied();
    // Before the first instruction is the entry of the function.
    let (mut at, mut position) = (-1_i64, 0_i64);
    let mut found = None;
    while let Some(step) = number(&mut bytes) {
        let change = number(&mut bytes)?;
        // The sign tells whether a statement begins here.
        let step = if step >= 0 { step } else { -(step + 1) };
        at = at.checked_add(step)?;
        position = position.checked_add(change)?;
        if at > offset {
            break;
        }
        found = Some(position);
    }
    Position::unpack(found?)
}

/// A number: seven bits in each byte, the lowest first; the lowest bit of all is the sign.
fn number(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let mut bits = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = bytes.next()?;
        bits |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((bits >> 1) as i64 ^ -((bits & 1) as i64));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(numbers: &[i64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in numbers {
            let mut bits = (number << 1 ^ number >> 63) as u64;
            while bits >= 0x80 {
                bytes.push(bits as u8 | 0x80);
                bits >>= 7;
            }
            bytes.push(bits as u8);
        }
        bytes
    }

    /// Check that an offset has the position of the last entry at or before it, also where no statement begins, and that positions can go
    /// back.
    #[test]
    fn offsets_have_positions() {
        let packed = |position: i64| (position + 1) << 1;
        let table = encode(&[
            4,
            packed(1000),
            -5 - 1,
            packed(1200) - packed(1000),
            2,
            packed(50) - packed(1200),
        ]);
        for (offset, expected) in [
            (0, None),
            (2, None),
            (3, Some(1000)),
            (7, Some(1000)),
            (8, Some(1200)),
            (9, Some(1200)),
            (10, Some(50)),
            (1 << 40, Some(50)),
        ] {
            let found = position(&table, offset).map(|it| it.at);
            assert_eq!(found, expected, "{offset}");
        }
        assert_eq!(position(&[], 5), None);
        assert_eq!(position(&[0x80; 40], 5), None);
    }

    /// Check that a packed position has its inlining, and that code outside has no position.
    #[test]
    fn positions_are_unpacked() {
        let unpacked = |packed| Position::unpack(packed).map(|it| (it.at, it.inlining));
        assert_eq!(unpacked(8 << 1), Some((7, None)));
        assert_eq!(unpacked(8 << 1 | 4 << 31), Some((7, Some(3))));
        assert_eq!(unpacked(8 << 1 | 1), None);
        assert_eq!(unpacked(0), None);
        assert_eq!(unpacked(-1), None);
    }
}
