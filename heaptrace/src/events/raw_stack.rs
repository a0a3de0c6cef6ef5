//! Decodes raw stacks.
//!
//! Stage: events. The words come from the stack of the traced process.

use heaptrace_common::limits::MAX_RAW_WORDS;
use heaptrace_common::unwind::Registers;
use heaptrace_common::wire::RawStack as Wire;

use super::bytes::{DecodeError, split_list, words};

/// What a walk can use of a thread's stack, from the last frame of a stack on that ended for want of an unwind table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawStack {
    /// Serial number of the process record.
    pub process: u64,
    /// The hash of the stack that it belongs to.
    pub hash: [u64; 2],
    /// Registers of that stack's last frame.
    pub registers: Registers,
    /// Whether that frame's address is a return address.
    pub is_return_address: bool,
    /// Whether a rule led to that frame, and no frame pointer.
    pub is_by_rule: bool,
    /// How many bytes were searched for words, from the stack pointer on.
    pub bytes: u64,
    /// The words that were found, each packed with its slot.
    pub words: Vec<u64>,
}

/// Decodes a raw stack.
pub(super) fn decode(bytes: &[u8]) -> Result<RawStack, DecodeError> {
    let head = std::mem::offset_of!(Wire, words);
    let (head, list) = split_list(bytes, head, MAX_RAW_WORDS, size_of::<u64>())?;
    let [_, process, low, high, ip, sp, bp, marks, searched] = words(head)[..] else {
        return Err(DecodeError::Size {
            got: bytes.len(),
            want: head.len(),
        });
    };
    Ok(RawStack {
        process,
        hash: [low, high],
        registers: Registers { ip, sp, bp },
        is_return_address: marks as u32 != 0,
        is_by_rule: marks >> 32 != 0,
        bytes: searched,
        words: words(list),
    })
}

#[cfg(test)]
mod tests {
    use heaptrace_common::wire::kind;

    use super::*;

    /// Check that a raw stack is decoded as it was sent, and that its number of words must be that of the record.
    #[test]
    fn raw_stacks_are_decoded_as_sent() {
        let bytes = |count: u64, words: &[u64]| -> Vec<u8> {
            let kind = u64::from(kind::RAW_STACK) | count << 32;
            let head = [kind, 5, 6, 7, 0x1000, 0x7000, 1, 1, 4096];
            let words = head.iter().chain(words);
            words.flat_map(|word| word.to_ne_bytes()).collect()
        };
        let expected = RawStack {
            process: 5,
            hash: [6, 7],
            registers: Registers {
                ip: 0x1000,
                sp: 0x7000,
                bp: 1,
            },
            is_return_address: true,
            is_by_rule: false,
            bytes: 4096,
            words: vec![8, 9],
        };
        assert_eq!(decode(&bytes(2, &[8, 9])), Ok(expected));
        for (count, words) in [(1, &[8, 9][..]), (3, &[8, 9])] {
            assert!(decode(&bytes(count, words)).is_err(), "{count}");
        }
        assert!(decode(&bytes(0, &[])[..70]).is_err());
        assert_eq!(decode(&bytes(1025, &[])), Err(DecodeError::Depth(1025)));
    }
}
