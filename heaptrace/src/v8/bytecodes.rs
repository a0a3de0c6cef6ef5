//! How long the instructions of V8's bytecode are, and where the code that was compiled from each begins.
//!
//! Part of `v8`. Bytecode and tables are untrusted. Must not know where they come from.

/// The lengths of a version's instructions, by the byte with which they begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lengths {
    /// The length of each instruction, as a digit.
    pub(super) whole: &'static [u8],
    /// The bytes of it that become wider behind a prefix, as a digit.
    pub(super) wide: &'static [u8],
}

/// Of V8 9.4.
pub(super) const V9_4: Lengths = Lengths {
    whole: b"11111234556212111112442223222111233342244244344333444452333333333333333333333333222211122255456534555644553333333322221441241434233331113222222222222222222222242335211112112454412211111111111111111",
    wide: b"00000123423101000001331112111000022231133133133222333331222222222222222222222222111100011144345423442322442222222211110220120222122220002111111111111111111111131224100001001343301100000000000000000",
};

/// Of V8 10.2.
pub(super) const V10_2: Lengths = Lengths {
    whole: b"111112345562121111124422232221112333422442443443334444452333333333333333333333333222211122255456534555644553333333322221441241434233331113222222222222222222222242335211112112454412211111111111111111",
    wide: b"000001234231010000013311121110000222311331331332223333331222222222222222222222222111100011144345423442322442222222211110220120222122220002111111111111111111111131224100001001343301100000000000000000",
};

/// Of V8 11.3.
pub(super) const V11_3: Lengths = Lengths {
    whole: b"111112345562121111124422232221112333422442443443334445453333333333333333333333332222111222455456534555644553333333322221541241434233331114222222222222222222222242335211112112454412211111111111111111",
    wide: b"000001234231010000013311121110000222311331331332223333332222222222222222222222221111000111344345423442322442222222211110220120222122220003111111111111111111111131224100001001343301100000000000000000",
};

/// Of V8 12.4.
pub(super) const V12_4: Lengths = Lengths {
    whole: b"11111234556212111112442223222111233342422442443443533444545333333333333333333333333222211122245545653455564455333333333122211541241434233331114222222222222222222222242335211112112454412211111111111111111",
    wide: b"00000123423101000001331112111000022231311331331332422333333222222222222222222222222111100011134434542344232244222222222011100220120222122220003111111111111111111111131224100001001343301100000000000000000",
};

/// Of V8 13.6.
pub(super) const V13_6: Lengths = Lengths {
    whole: b"1111123455621211111244422223222111233342422444244434435334445453333333333333333333333332222112222455456534555644553333333331222115412414342333311142222222222422222222222244235211112112454412211111111111111111",
    wide: b"0000012342310100000133311112111000022231311333133313324223333332222222222222222222222221111001111344345423442322442222222220111002201202221222200031111111111311111111111133124100001001343301100000000000000000",
};

/// Prefixes, by what they do to the wide bytes of the instruction that follows: twice, or four times.
const PREFIXES: [u8; 4] = [2, 4, 2, 4];

impl Lengths {
    /// The length of the instruction at the beginning of these bytes, with its prefix.
    fn of(&self, bytecode: &[u8]) -> Option<usize> {
        let first = *bytecode.first()?;
        let factor = PREFIXES.get(usize::from(first)).copied();
        let (prefix, code, factor) = match factor {
            Some(factor) => (1, *bytecode.get(1)?, usize::from(factor)),
            None => (0, first, 1),
        };
        let digit = |digits: &[u8]| {
            let digit = *digits.get(usize::from(code))?;
            Some(usize::from(digit.wrapping_sub(b'0')))
        };
        Some(prefix + digit(self.whole)? + digit(self.wide)? * (factor - 1))
    }
}

/// The offset of the instruction from which the code that ends at an offset, or holds it, was compiled. The table has the length
/// of the code before the first instruction, and then of each.
pub(super) fn compiled_from(
    lengths: &Lengths,
    bytecode: &[u8],
    table: &[u8],
    code_offset: u64,
) -> Option<u32> {
    let mut table = table.iter().copied();
    let mut end = number(&mut table)?;
    let mut at = 0;
    while let Some(length) = number(&mut table) {
        end = end.checked_add(length)?;
        if end >= code_offset {
            return u32::try_from(at).ok();
        }
        at += lengths.of(bytecode.get(at..)?)?;
    }
    None
}

/// A number without a sign: seven bits in each byte, the lowest first.
fn number(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut bits = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = bytes.next()?;
        bits |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(bits);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTHS: Lengths = Lengths {
        whole: b"1111132",
        wide: b"0000021",
    };

    /// Check that code belongs to the instruction from which it was compiled, also behind prefixes.
    #[test]
    fn code_belongs_to_an_instruction() {
        // 3 bytes; a prefix and 5 bytes; a prefix and 9 bytes; 2 bytes.
        let mut bytecode = vec![5, 0, 0, 0, 5, 0, 0, 0, 0, 1, 5];
        bytecode.extend([0; 8]);
        bytecode.extend([6, 0]);
        let table = [10, 20, 0x80 | 5, 1, 40, 50];
        for (code_offset, expected) in [
            (1, Some(0)),
            (30, Some(0)),
            (31, Some(3)),
            (163, Some(3)),
            (164, Some(9)),
            (203, Some(9)),
            (204, Some(19)),
            (253, Some(19)),
            (254, None),
        ] {
            let found = compiled_from(&LENGTHS, &bytecode, &table, code_offset);
            assert_eq!(found, expected, "{code_offset}");
        }
        assert_eq!(compiled_from(&LENGTHS, &[], &table, 31), None);
        assert_eq!(compiled_from(&LENGTHS, &[9; 9], &table, 31), None);
    }

    /// Check that each version has as many lengths as parts that become wider, and that none of these is the whole instruction.
    #[test]
    fn lengths_are_consistent() {
        for Lengths { whole, wide } in [V9_4, V10_2, V11_3, V12_4, V13_6] {
            assert_eq!(whole.len(), wide.len());
            assert!(whole.iter().zip(wide).all(|(whole, wide)| wide < whole));
        }
    }
}
