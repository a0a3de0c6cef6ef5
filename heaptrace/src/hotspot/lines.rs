//! The table of lines of a Java method.
//!
//! Part of `hotspot`.

use super::packed::{Packed, Packing};

/// The line of a position in the bytecode; 0 if the table has none. `bytes` begins with the table, which ends itself.
pub(super) fn line(bytes: &[u8], packing: Packing, position: u32) -> u32 {
    let mut packed = Packed::new(bytes, packing);
    let (mut at, mut line) = (0i32, 0i32);
    let mut best: Option<(i32, i32)> = None;
    let Ok(position) = i32::try_from(position) else {
        return 0;
    };
    // The positions need not be in order.
    while let Some((more, lines)) = next(&mut packed) {
        at = at.wrapping_add(more);
        line = line.wrapping_add(lines);
        if at <= position && best.is_none_or(|(before, _)| at >= before) {
            best = Some((at, line));
        }
    }
    best.map_or(0, |(_, line)| u32::try_from(line).unwrap_or(0))
}

/// The differences of the next entry: of the position, and of the line. `None` at the end.
fn next(packed: &mut Packed<'_>) -> Option<(i32, i32)> {
    const END: u8 = 0;
    const LONG: u8 = 0xff;
    match packed.byte()? {
        END => None,
        LONG => Some((packed.signed()?, packed.signed()?)),
        short => Some(((short >> 3).into(), (short & 7).into())),
    }
}
