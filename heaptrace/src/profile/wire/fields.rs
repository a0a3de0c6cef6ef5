//! Splits a message into its fields, without decoding them.
//!
//! Stage: profile. A message that is decoded as a whole can use a hundred times its size in memory. This
//! hands out each record in it, so that its memory can be checked before it is decoded. Knows nothing of the
//! meaning of fields.

use prost::bytes::Buf as _;

use super::error::WireError;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// A number.
    Number(u64),
    /// A text, a message, or packed numbers.
    Bytes(&'a [u8]),
}

/// The fields of a message, with their tags.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    fn take(&mut self) -> Result<(u64, Value<'a>), WireError> {
        let key = self.number()?;
        let value = match key & 7 {
            0 => Value::Number(self.number()?),
            1 => Value::Number(u64::from_le_bytes(self.array()?)),
            2 => {
                let len = self.number()?;
                Value::Bytes(self.bytes(len)?)
            }
            5 => Value::Number(u32::from_le_bytes(self.array()?).into()),
            _ => return Err(WireError::Malformed),
        };
        Ok((key >> 3, value))
    }

    fn number(&mut self) -> Result<u64, WireError> {
        let number = number(&mut self.rest);
        number.ok_or(WireError::Malformed)
    }

    fn bytes(&mut self, len: u64) -> Result<&'a [u8], WireError> {
        let at = usize::try_from(len).map_err(|_| WireError::Malformed)?;
        let (bytes, rest) = self.rest.split_at_checked(at).ok_or(WireError::Malformed)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        self.bytes(N as u64)?
            .try_into()
            .map_err(|_| WireError::Malformed)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.take();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

/// Takes a number of variable length off the bytes; `None` if they don't begin with one.
pub(super) fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = bytes.try_get_u8().ok()?;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return None;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that fields of every kind are handed out as they were written, and that a cut message is an error.
    #[test]
    fn fields_of_every_kind_are_handed_out() {
        let message = [
            &[0x08, 0x96, 0x01][..],
            &[0x11, 1, 0, 0, 0, 0, 0, 0, 0x80],
            &[0x1a, 2, 7, 8],
            &[0x25, 9, 0, 0, 0],
        ]
        .concat();
        let fields: Vec<_> = Fields::new(&message).map(Result::unwrap).collect();
        let expected = [
            (1, Value::Number(150)),
            (2, Value::Number(1 | 1 << 63)),
            (3, Value::Bytes(&[7, 8])),
            (4, Value::Number(9)),
        ];
        assert_eq!(fields, expected);
        for len in 1..message.len() {
            let whole = [0, 3, 12, 16].contains(&len);
            let last = Fields::new(&message[..len]).last().unwrap();
            assert_eq!(last.is_ok(), whole, "{len}");
        }
        // Groups, and numbers of more than 64 bits.
        for wrong in [
            &[0x0b][..],
            &[
                0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f,
            ],
        ] {
            assert!(Fields::new(wrong).any(|field| field.is_err()));
        }
    }
}
