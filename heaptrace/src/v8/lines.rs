//! Where the lines of a script begin.
//!
//! Part of `v8`. The source is untrusted. Must not know how it is read.

use super::heap::Text;

/// Most lines of a script that are told apart.
const MAX_LINES: usize = 1 << 20;

/// The positions at which the lines of a script begin, but for the first one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    begins: Box<[u32]>,
}

impl Lines {
    /// The lines of a source.
    pub(super) fn of(source: &Text) -> Self {
        match source {
            Text::OneByte(bytes) => Self::of_units(bytes.iter().map(|byte| u16::from(*byte))),
            Text::TwoBytes(units) => Self::of_units(units.iter().copied()),
        }
    }

    fn of_units(units: impl Iterator<Item = u16>) -> Self {
        const RETURN: u16 = 0x0d;
        let mut begins = Vec::new();
        let mut units = units.zip(1..).peekable();
        while let Some((unit, next)) = units.next() {
            let is_end = match unit {
                RETURN => units.peek().is_none_or(|(unit, _)| *unit != 0x0a),
                0x0a | 0x2028 | 0x2029 => true,
                _ => false,
            };
            if is_end {
                begins.push(next);
                if begins.len() >= MAX_LINES {
                    break;
                }
            }
        }
        Self {
            begins: begins.into_boxed_slice(),
        }
    }

    /// The line of a position, counted from 1.
    pub fn line(&self, position: u32) -> u32 {
        self.begins.partition_point(|begin| *begin <= position) as u32 + 1
    }

    /// The number of lines.
    pub fn count(&self) -> usize {
        self.begins.len() + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that positions have the line that editors show, with each kind of line end.
    #[test]
    fn positions_have_lines() {
        let text = "a\nbc\r\nd\re\u{2028}f\u{2029}g";
        let units: Vec<u16> = text.encode_utf16().collect();
        let lines = Lines::of(&Text::TwoBytes(units));
        let found: Vec<_> = (0..14).map(|at| lines.line(at)).collect();
        assert_eq!(found, [1, 1, 2, 2, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]);
        assert_eq!(lines.count(), 6);
        let lines = Lines::of(&Text::OneByte(b"a\n\nb".to_vec()));
        assert_eq!([0, 1, 2, 3, 99].map(|at| lines.line(at)), [1, 1, 2, 3, 3]);
        assert_eq!(Lines::of(&Text::OneByte(Vec::new())).line(0), 1);
    }
}
