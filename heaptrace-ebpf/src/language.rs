//! What the frames of all languages have in common: the state of a thread, and stacks that are sent once for each process.

use aya_ebpf::maps::{Array, HashMap};
use heaptrace_common::{
    limits::MAX_FRAMES,
    wire::{LanguageStackKey, Stack, ThreadState},
};

use crate::{maps::LANGUAGE_STACKS, ring};

/// The entry of a thread in a map of states, which begins as a blank one; `None` if the map is full.
#[inline(always)]
pub fn of_thread<T>(
    states: &'static HashMap<u64, T>,
    blank: &'static Array<T>,
    key: u64,
) -> Option<&'static mut T> {
    if let Some(state) = existing(states, key) {
        return Some(state);
    }
    // Whether it failed shows in the lookup that follows.
    let _ = states.insert(key, blank.get(0)?, 0);
    existing(states, key)
}

/// The entry of a thread, if it has one.
#[inline(always)]
pub fn existing<T>(states: &'static HashMap<u64, T>, key: u64) -> Option<&'static mut T> {
    // SAFETY: only the thread itself uses the entry under its key, and it runs one program at a time.
    states.get_ptr_mut(key).map(|state| unsafe { &mut *state })
}

/// Notes that a frame of a stack belongs to a language.
#[inline(always)]
pub fn mark(stack: &mut Stack, frame: usize) {
    stack.head.language_frames[(frame & (MAX_FRAMES - 1)) >> 6] |= 1 << (frame & 63);
}

/// Notes that a frame belongs to none, as the frame of an earlier walk may have.
#[inline(always)]
pub fn unmark(stack: &mut Stack, frame: usize) {
    stack.head.language_frames[(frame & (MAX_FRAMES - 1)) >> 6] &= !(1 << (frame & 63));
}

/// Makes language frames a part of the thread's stack, by their id; 0 if there are none.
#[inline(always)]
pub fn set(state: &mut ThreadState, id: u64) {
    let head = &mut state.stack.head;
    if head.language != id {
        head.language = id;
        head.id = 0;
    }
}

/// Whether a stack of language frames was sent.
#[inline(always)]
pub fn is_sent(key: LanguageStackKey) -> bool {
    // SAFETY: the value is not used.
    unsafe { LANGUAGE_STACKS.get(key) }.is_some()
}

/// Sends a stack of language frames: the head of its record, and so many frames. False if the ring is full.
///
/// # Safety
///
/// The record must have that head and so many frames.
#[inline(always)]
pub unsafe fn send<T>(
    key: LanguageStackKey,
    stack: &mut T,
    head: usize,
    frames: u32,
    frame_bytes: usize,
) -> bool {
    let bytes = head as u64 + u64::from(frames) * frame_bytes as u64;
    // As with stacks, it is sent before it enters the map.
    // SAFETY: by this function's own condition.
    let is_sent = unsafe { ring::output(stack, bytes, ring::QUIETLY) };
    if is_sent {
        let _ = LANGUAGE_STACKS.insert(key, 1, 0);
    }
    is_sent
}
