//! The memory of the traced process, read in words.

use core::{ffi::c_void, hint::black_box};

use aya_ebpf::helpers::{bpf_probe_read_user, generated};
use heaptrace_common::unwind::Memory;

/// The memory of the process, read word by word.
pub struct Process;

impl Memory for Process {
    #[inline(always)]
    fn read(&mut self, address: u64) -> Option<u64> {
        word_at(address)
    }
}

/// The word at an address.
#[inline(always)]
pub fn word_at(address: u64) -> Option<u64> {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_user(address as *const u64) }.ok()
}

/// Reads bytes from an address on, at most as many as the words have. False if they can't be read.
#[inline(always)]
pub fn read_words<const WORDS: usize>(words: &mut [u64; WORDS], address: u64, bytes: u32) -> bool {
    // SAFETY: the helper checks the address, and the words have at least this size.
    let read = unsafe {
        generated::bpf_probe_read_user(
            words.as_mut_ptr().cast::<c_void>(),
            bytes,
            address as *const c_void,
        )
    };
    read == 0
}

/// The word with the byte at an offset of what was read. The number of words is a power of two.
#[inline(always)]
pub fn word<const WORDS: usize>(words: &[u64; WORDS], offset: u16) -> u64 {
    const {
        assert!(WORDS.is_power_of_two());
    }
    // The compiler knows that the index is in bounds; the verifier does not.
    words[black_box(usize::from(offset >> 3)) & (WORDS - 1)]
}
