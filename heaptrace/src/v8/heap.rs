//! Reads V8's objects from the memory of a process.
//!
//! Part of `v8`. The memory is untrusted, and changes while it is read: all lengths are limited, and what is found may be of no use.
//! Must not know functions nor scripts.

use heaptrace_common::wire::{V8_MAP, V8_MAP_TYPE, is_v8_object};

/// The memory of a process.
pub trait Memory {
    /// Reads bytes at an address; `None` if not all of them can be read.
    fn read(&self, address: u64, bytes: &mut [u8]) -> Option<()>;
}

/// Bytes that are read at a time.
const PIECE: usize = 64 << 10;

/// Most strings of which a string is composed, one inside of another.
const MAX_DEPTH: u32 = 16;

/// Most parts of a string.
const MAX_PARTS: u32 = 256;

/// Types of strings: bits of the type, below the first type of other objects.
mod string {
    /// The first type of an object that is no string.
    pub(super) const END: u16 = 128;
    /// The bits that tell how the characters are kept.
    pub(super) const FORM: u16 = 7;
    /// In the string itself.
    pub(super) const PLAIN: u16 = 0;
    /// In two other strings.
    pub(super) const PAIR: u16 = 1;
    /// Outside of V8's memory.
    pub(super) const OUTSIDE: u16 = 2;
    /// In a part of another string.
    pub(super) const PART: u16 = 3;
    /// In another string.
    pub(super) const ALIAS: u16 = 5;
    /// The bit of strings with one byte for a character.
    pub(super) const ONE_BYTE: u16 = 8;
    /// Where the length is.
    pub(super) const LENGTH: u64 = 12;
    /// Where the characters, or the first pointer, are.
    pub(super) const CONTENT: u64 = 16;
    /// Where the second pointer, the beginning of a part, or the address outside is.
    pub(super) const SECOND: u64 = 24;
}

/// V8's memory.
pub(super) struct Heap<'a, M> {
    memory: &'a M,
}

/// The characters of a string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Text {
    /// Latin-1.
    OneByte(Vec<u8>),
    /// UTF-16.
    TwoBytes(Vec<u16>),
}

impl Text {
    /// As UTF-8. Halves of pairs become U+FFFD.
    pub(super) fn to_utf8(&self) -> String {
        match self {
            Self::OneByte(bytes) => bytes.iter().map(|byte| char::from(*byte)).collect(),
            Self::TwoBytes(units) => String::from_utf16_lossy(units),
        }
    }
}

impl<'a, M: Memory> Heap<'a, M> {
    pub(super) fn new(memory: &'a M) -> Self {
        Self { memory }
    }

    /// The word at an address.
    fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.memory.read(address, &mut bytes)?;
        Some(u64::from_le_bytes(bytes))
    }

    /// A field of an object.
    pub(super) fn field(&self, object: u64, offset: u64) -> Option<u64> {
        let address = is_v8_object(object).then(|| object - 1)?;
        self.word(address.checked_add(offset)?)
    }

    /// The type of an object.
    pub(super) fn type_of(&self, object: u64) -> Option<u16> {
        let word = self.field(self.field(object, V8_MAP)?, V8_MAP_TYPE - 4)?;
        Some((word >> 32) as u16)
    }

    /// A field that is a small number.
    pub(super) fn number(&self, object: u64, offset: u64) -> Option<i32> {
        small_number(self.field(object, offset)?)
    }

    /// The content of an array of bytes of at most so many.
    pub(super) fn bytes(&self, array: u64, most: usize) -> Option<Vec<u8>> {
        let length = usize::try_from(self.number(array, 8)?).ok()?;
        if length > most {
            return None;
        }
        self.range(array.checked_add(15)?, length)
    }

    /// Bytes at an address. An object can claim any length, so memory is taken only for what is there.
    pub(super) fn range(&self, address: u64, length: usize) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let at = bytes.len();
            bytes.resize(length.min(at + PIECE), 0);
            let address = address.checked_add(at as u64)?;
            self.memory.read(address, bytes.get_mut(at..)?)?;
        }
        Some(bytes)
    }

    /// Whether an object is a string.
    pub(super) fn is_string(&self, object: u64) -> bool {
        self.type_of(object).is_some_and(|it| it < string::END)
    }

    /// A string of at most so many characters, or its beginning.
    pub(super) fn text(&self, object: u64, most: usize) -> Option<Text> {
        let length = self.length(object)?.min(most);
        let mut parts = MAX_PARTS;
        let mut units = Units::default();
        self.append(object, 0, length, MAX_DEPTH, &mut parts, &mut units)?;
        Some(match units.wide {
            None => Text::OneByte(units.narrow),
            Some(wide) => Text::TwoBytes(wide),
        })
    }

    /// A name, cut to a length.
    pub(super) fn name(&self, object: u64, most: usize) -> Option<String> {
        let mut name = self.text(object, most)?.to_utf8();
        if self.length(object)? > most {
            name.push('…');
        }
        Some(name)
    }

    /// The number of characters of a string.
    pub(super) fn length(&self, object: u64) -> Option<usize> {
        let word = self.field(object, string::LENGTH - 4)?;
        self.is_string(object).then_some((word >> 32) as usize)
    }

    /// Appends some characters of a string.
    fn append(
        &self,
        object: u64,
        start: usize,
        count: usize,
        depth: u32,
        parts: &mut u32,
        units: &mut Units,
    ) -> Option<()> {
        if count == 0 {
            return Some(());
        }
        *parts = parts.checked_sub(1)?;
        let depth = depth.checked_sub(1)?;
        let kind = self.type_of(object).filter(|kind| *kind < string::END)?;
        if start.checked_add(count)? > self.length(object)? {
            return None;
        }
        let is_narrow = kind & string::ONE_BYTE != 0;
        let first = || self.field(object, string::CONTENT);
        match kind & string::FORM {
            string::PLAIN => {
                let content = (object - 1).checked_add(string::CONTENT)?;
                self.append_plain(content, start, count, is_narrow, units)
            }
            string::OUTSIDE => {
                let content = self.field(object, string::SECOND)?;
                self.append_plain(content, start, count, is_narrow, units)
            }
            string::ALIAS => self.append(first()?, start, count, depth, parts, units),
            string::PART => {
                let begin = self.number(object, string::SECOND)?;
                let start = start.checked_add(usize::try_from(begin).ok()?)?;
                self.append(first()?, start, count, depth, parts, units)
            }
            string::PAIR => {
                let first = first()?;
                let length = self.length(first)?;
                let of_first = length.saturating_sub(start).min(count);
                self.append(first, start, of_first, depth, parts, units)?;
                let second = self.field(object, string::SECOND)?;
                let start = start.saturating_sub(length);
                self.append(second, start, count - of_first, depth, parts, units)
            }
            _ => None,
        }
    }

    fn append_plain(
        &self,
        content: u64,
        start: usize,
        count: usize,
        is_narrow: bool,
        units: &mut Units,
    ) -> Option<()> {
        let width = if is_narrow { 1 } else { 2 };
        let at = content.checked_add((start * width) as u64)?;
        let mut bytes = self.range(at, count.checked_mul(width)?)?;
        if is_narrow && units.wide.is_none() {
            units.narrow.append(&mut bytes);
            return Some(());
        }
        let narrow = std::mem::take(&mut units.narrow);
        let wide = units
            .wide
            .get_or_insert_with(|| narrow.into_iter().map(u16::from).collect());
        if is_narrow {
            wide.extend(bytes.into_iter().map(u16::from));
        } else {
            let pairs = bytes.as_chunks::<2>().0.iter();
            wide.extend(pairs.map(|pair| u16::from_le_bytes(*pair)));
        }
        Some(())
    }
}

/// The characters of a string that is read: narrow ones until the first wide part.
#[derive(Default)]
struct Units {
    narrow: Vec<u8>,
    wide: Option<Vec<u16>>,
}

/// The number in a word, if it is a small number.
pub(super) fn small_number(word: u64) -> Option<i32> {
    (word as u32 == 0).then_some((word >> 32) as u32 as i32)
}
