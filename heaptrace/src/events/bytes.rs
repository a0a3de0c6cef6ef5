//! Reads the structs of the kernel program's records from bytes.
//!
//! Stage: events.

use heaptrace_common::wire::{
    Alloc, Free, MapChange, NeedJvm, NeedTable, ProcessBegin, ProcessEnd, PythonCode, StackHead,
};
use thiserror::Error;

/// Why bytes are not a record.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum DecodeError {
    /// They are too short for a kind, or have another length than records of their kind.
    #[error("the kernel program sent a record of {got} bytes instead of {want}; it is ignored")]
    Size {
        /// The bytes that arrived.
        got: usize,
        /// The bytes that a record of this kind has.
        want: usize,
    },
    /// There is no such kind of record.
    #[error("the kernel program sent a record of the unknown kind {0}; it is ignored")]
    Kind(u16),
    /// A stack claims more frames than a stack can have.
    #[error(
        "the kernel program sent a stack of {0} frames, more than a stack can have; it is ignored"
    )]
    Depth(u32),
}

/// Structs that can be read from any bytes.
///
/// # Safety
///
/// `repr(C)`, integers only: every bit pattern is a value.
pub(super) unsafe trait Wire: Copy {}
// SAFETY: integers only.
unsafe impl Wire for Alloc {}
// SAFETY: integers only.
unsafe impl Wire for Free {}
// SAFETY: integers only.
unsafe impl Wire for StackHead {}
// SAFETY: integers only.
unsafe impl Wire for ProcessBegin {}
// SAFETY: integers only.
unsafe impl Wire for ProcessEnd {}
// SAFETY: integers only.
unsafe impl Wire for NeedTable {}
// SAFETY: integers only.
unsafe impl Wire for NeedJvm {}
// SAFETY: integers only.
unsafe impl Wire for MapChange {}
// SAFETY: integers only.
unsafe impl Wire for PythonCode<0> {}

/// The struct that the bytes are.
pub(super) fn exact<T: Wire>(bytes: &[u8]) -> Result<T, DecodeError> {
    if bytes.len() != size_of::<T>() {
        return Err(DecodeError::Size {
            got: bytes.len(),
            want: size_of::<T>(),
        });
    }
    // SAFETY: the bytes have the size of the struct, and every bit pattern is a value of it.
    Ok(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// The two parts of a record with a list at its end: `head` bytes, and the list. The record has the number of items, of `each` bytes, behind
/// its kind, in bytes 4 to 8. There are `most` at most.
pub(super) fn split_list(
    bytes: &[u8],
    head: usize,
    most: usize,
    each: usize,
) -> Result<(&[u8], &[u8]), DecodeError> {
    let size = |want| DecodeError::Size {
        got: bytes.len(),
        want,
    };
    let (before, list) = bytes.split_at_checked(head).ok_or_else(|| size(head))?;
    let count = before.get(4..).and_then(|it| it.first_chunk::<4>());
    let count = u32::from_ne_bytes(*count.ok_or_else(|| size(head))?);
    if count as usize > most {
        return Err(DecodeError::Depth(count));
    }
    if list.len() != count as usize * each {
        return Err(size(head + count as usize * each));
    }
    Ok((before, list))
}

/// The bytes as whole words.
pub(super) fn words(bytes: &[u8]) -> Vec<u64> {
    let words = bytes.as_chunks::<8>().0.iter();
    words.map(|word| u64::from_ne_bytes(*word)).collect()
}

/// The bytes of a struct, as the kernel program sends it.
#[cfg(test)]
pub(super) fn bytes_of<T: Wire>(value: &T) -> Vec<u8> {
    // SAFETY: integers without padding between them.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }.to_vec()
}
