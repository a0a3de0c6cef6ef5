//! Raw stacks: what the agent needs to continue a walk that the kernel program could not continue.

use crate::limits::{MAX_RAW_WORDS, RAW_STACK_BYTES};
use crate::unwind::Registers;

/// The words of a thread's stack that a walk can use, from the frame on at which the kernel program's walk ended for want of a
/// table. It is sent before its [`Stack`](super::Stack).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RawStack {
    /// [`kind::RAW_STACK`](super::kind::RAW_STACK).
    pub kind: u16,
    /// Zero.
    pub pad: u16,
    /// Number of words.
    pub count: u32,
    /// Serial number of the process record.
    pub process: u64,
    /// The hash of its stack.
    pub hash: [u64; 2],
    /// Registers of the last frame of its stack. A frame pointer that can't be one is replaced by
    /// [`LOST_BP`](crate::unwind::LOST_BP).
    pub registers: Registers,
    /// 1 if that frame's address is a return address, else 0.
    pub is_return_address: u32,
    /// 1 if a rule led to that frame, 0 if a frame pointer did.
    pub is_by_rule: u32,
    /// How many bytes were searched for words, from the stack pointer on.
    pub bytes: u64,
    /// Words that can be an address of code or of this part of the stack, in the order of their slots: see [`pack_word`].
    /// `count` of them are sent.
    pub words: [u64; MAX_RAW_WORDS],
}

/// The state of a thread that sends raw stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RawWalk {
    /// The raw stack of the pending call.
    pub stack: RawStack,
    /// A hash of it.
    pub hash: [u64; 2],
    /// Address of the first piece to read.
    pub base: u64,
    /// First address that is not read.
    pub end: u64,
    /// The end of the last page that could not be read. A function's array may have pages that it has not touched.
    pub gap_end: u64,
    /// Marks of the last words that are 0: see [`mark_zeros`].
    pub zeros: u64,
    /// Code and stack: where words must point to, as first addresses and lengths.
    pub targets: [[u64; 2]; RAW_TARGETS],
}

/// Number of ranges of addresses that the words of a raw stack may point to.
pub const RAW_TARGETS: usize = 4;

/// Bits of an address in a packed word.
const ADDRESS_BITS: u32 = 47;

/// Bits of a slot in a packed word.
const SLOT_BITS: u32 = 12;

/// How many words below it a packed word tells about: as many as a function saves before its frame pointer.
pub const ZERO_MARKS: u32 = u64::BITS - ADDRESS_BITS - SLOT_BITS;

/// A word of a raw stack, with its slot: its distance from the stack pointer, in words.
#[inline(always)]
pub const fn pack_word(slot: u64, address: u64) -> u64 {
    slot << ADDRESS_BITS | address
}

/// A packed word, with marks of the words right below it that are 0. A frame pointer of 0 ends a chain of frames.
#[inline(always)]
pub const fn mark_zeros(word: u64, zeros: u64) -> u64 {
    word | zeros << (ADDRESS_BITS + SLOT_BITS)
}

/// The marks for the word above the next one.
#[inline(always)]
pub const fn next_zeros(zeros: u64, is_zero: bool) -> u64 {
    (zeros << 1 | is_zero as u64) & ((1 << ZERO_MARKS) - 1)
}

/// The slot of a packed word.
#[inline(always)]
pub const fn word_slot(word: u64) -> u64 {
    word >> ADDRESS_BITS & ((1 << SLOT_BITS) - 1)
}

/// The address in a packed word.
#[inline(always)]
pub const fn word_address(word: u64) -> u64 {
    word & ((1 << ADDRESS_BITS) - 1)
}

/// Whether a packed word tells that a word is 0 that is so many slots below it.
#[inline(always)]
pub const fn is_zero_below(word: u64, slots: u64) -> bool {
    slots >= 1
        && slots <= ZERO_MARKS as u64
        && word >> (ADDRESS_BITS + SLOT_BITS) >> (slots - 1) & 1 != 0
}

const _: () = {
    assert!(RAW_STACK_BYTES / 8 <= 1 << SLOT_BITS);
    assert!(size_of::<RawStack>() == 72 + 8 * MAX_RAW_WORDS);
    assert!(size_of::<RawWalk>() == size_of::<RawStack>() + 48 + 16 * RAW_TARGETS);
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a word, its slot and the marks of zeros below it are unpacked as they were packed.
    #[test]
    fn packed_words_unpack() {
        let mut zeros = 0;
        for word in [0, 0, 7, 0, 7, 7, 0] {
            zeros = next_zeros(zeros, word == 0);
        }
        let word = mark_zeros(pack_word(4095, 0x7fff_ffff_fff8), zeros);
        let unpacked = (word_slot(word), word_address(word));
        assert_eq!(unpacked, (4095, 0x7fff_ffff_fff8));
        // The last words are the closest ones; those beyond the marks are not known.
        let marks = core::array::from_fn::<_, 9, _>(|slots| is_zero_below(word, slots as u64));
        let expected = [false, true, false, false, true, false, false, false, false];
        assert_eq!(marks, expected);
    }
}
