//! A window: a copy of a piece of the traced thread's stack. A single read costs more than copying a hundred
//! bytes.

use core::{ffi::c_void, hint::black_box};

use aya_ebpf::helpers::generated;
use heaptrace_common::{
    unwind::Memory,
    wire::{NO_WINDOW, StackWindow, WINDOW_SLOTS},
};

use crate::memory::word_at;

/// How many slots the window keeps below an address that it moves to: a frame's other slots are below that
/// address.
const SLOTS_BELOW: u64 = 8;

/// The stack, read through a window that moves with the walk.
pub struct Stack<'a> {
    window: &'a mut StackWindow,
    /// The last address that was read, 0 if there is none.
    pub last: u64,
}

impl Memory for Stack<'_> {
    #[inline(always)]
    fn read(&mut self, address: u64) -> Option<u64> {
        self.last = address;
        if let Some(value) = slot(self.window, address) {
            return Some(value);
        }
        move_to(self.window, address.wrapping_sub(8 * SLOTS_BELOW));
        read(self.window, address)
    }
}

impl<'a> Stack<'a> {
    #[inline(always)]
    pub fn new(window: &'a mut StackWindow) -> Self {
        Self { window, last: 0 }
    }
}

/// Opens the window at an address, and returns the word there. The window's old content belongs to an earlier
/// call.
#[inline(always)]
pub fn open(window: &mut StackWindow, address: u64) -> Option<u64> {
    move_to(window, address);
    read(window, address)
}

/// The word at an address. It is read alone if the window could not be filled because the stack ends inside it.
#[inline(always)]
fn read(window: &StackWindow, address: u64) -> Option<u64> {
    match slot(window, address) {
        Some(value) => Some(value),
        None => word_at(address),
    }
}

/// The word at an address, if it is in the window.
#[inline(always)]
pub fn slot(window: &StackWindow, address: u64) -> Option<u64> {
    let within = address.wrapping_sub(window.start);
    let index = (within >> 3) as usize;
    if within & 7 != 0 || index >= WINDOW_SLOTS {
        return None;
    }
    // The compiler knows that the index is in bounds; the verifier does not.
    Some(window.slots[black_box(index) & (WINDOW_SLOTS - 1)])
}

/// Fills the window from an address on.
#[inline(never)]
pub fn move_to(window: &mut StackWindow, address: u64) {
    // SAFETY: the helper checks the address, and the slots have this size.
    let read = unsafe {
        generated::bpf_probe_read_user(
            window.slots.as_mut_ptr().cast::<c_void>(),
            size_of_val(&window.slots) as u32,
            address as *const c_void,
        )
    };
    window.start = if read == 0 { address } else { NO_WINDOW };
}
