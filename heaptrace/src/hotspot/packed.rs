//! Numbers as the virtual machine packs them: one to five bytes each, small ones in one.
//!
//! Part of `hotspot`.

/// How a version packs numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    /// Up to Java 19.
    Old,
    /// From Java 20: no byte is 0.
    WithoutZeros,
}

impl Packing {
    /// The value of a byte with number 0.
    fn lowest(self) -> u32 {
        match self {
            Self::Old => 0,
            Self::WithoutZeros => 1,
        }
    }
}

/// Reads packed numbers.
#[derive(Clone, Debug)]
pub(super) struct Packed<'a> {
    bytes: &'a [u8],
    packing: Packing,
}

/// A byte from this on is followed by another one.
const FIRST_OF_MORE: u8 = 192;

/// Most bytes of a number.
const MOST: u32 = 5;

impl<'a> Packed<'a> {
    pub(super) fn new(bytes: &'a [u8], packing: Packing) -> Self {
        Self { bytes, packing }
    }

    /// The next byte as it is.
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    /// The next number.
    pub(super) fn number(&mut self) -> Option<u32> {
        let mut sum = 0u32;
        for index in 0..MOST {
            let byte = self.byte()?;
            let value = u32::from(byte).checked_sub(self.packing.lowest())?;
            sum = sum.wrapping_add(value << (6 * index));
            if byte < FIRST_OF_MORE {
                break;
            }
        }
        Some(sum)
    }

    /// The next number, which may be negative.
    pub(super) fn signed(&mut self) -> Option<i32> {
        let number = self.number()?;
        Some((number >> 1) as i32 ^ -((number & 1) as i32))
    }
}
