//! The walk cache: the words that a thread's last walk read, so that the next walk can stop early.
//!
//! A step follows from the registers of a frame, the rule for its code, and at most two words of the stack:
//! the return address, and the saved frame pointer. So a walk stops at a frame whose registers match the last
//! walk at the same depth, if the words that the last walk read beyond it are unchanged: the rest of the
//! stack is the same. Comparing words takes a fraction of the time of finding rules. If the first frame
//! matches, the whole stack is the last one, whose id is known.
//!
//! The rules must be the same, too. So the cache is valid only while the address space is unchanged and the
//! clock of the tables has not moved; the latter also lets a table that is in use be marked as used. Only
//! walks that reached an outermost frame leave a valid cache. Steps that read anything else (through a
//! signal's frame, or on another stack) are not compared, and neither are the frames before them.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_loop;
use heaptrace_common::{
    limits::MAX_FRAMES,
    unwind::{Rule, cfa},
    wire::{NO_WINDOW, Stack, WINDOW_SLOTS, WalkCache, WalkState, slot, walk},
};

use crate::{
    maps::USES,
    walk::{CONTINUE, STOP, Walk},
    window,
};

/// The base of slot numbers is a multiple of this many bytes.
const BASE_ALIGNMENT: u64 = 1 << 18;

/// Frames that one callback compares.
const FRAMES_PER_CALLBACK: u32 = 16;

/// Most callbacks of a comparison. Each one has compared that many frames, or moved the window.
const MAX_CALLBACKS: u32 = MAX_FRAMES as u32;

/// Begins a walk. Invalidates the last walk if its rules may have changed.
#[inline(always)]
pub fn begin(state: &mut WalkState, is_same_space: bool) {
    let cache = &mut state.cache;
    let base = state.registers.sp & !(BASE_ALIGNMENT - 1);
    let clock = USES.get(0).copied().unwrap_or(0);
    if !is_same_space || cache.base != base || cache.clock != clock {
        cache.depth = 0;
    }
    cache.base = base;
    cache.clock = clock;
    cache.recorded_from = 0;
    cache.is_complete = 0;
    cache.matched_from = MAX_FRAMES as u32;
    cache.bp_slot = slot::NONE;
}

/// Ends a walk: from now on it is the last walk.
#[inline(always)]
pub fn end(stack: &mut Stack, cache: &mut WalkCache) {
    if cache.matched_from != 0 {
        stack.head.id = 0;
    }
    let is_complete = cache.is_complete != 0 && stack.head.walk == walk::COMPLETE;
    cache.depth = if is_complete { stack.head.depth } else { 0 };
    cache.valid_from = cache.recorded_from;
}

/// Whether the stack from this frame on is the last walk's. If it is not, records the frame's registers.
#[inline(always)]
pub fn matches(walk: &mut Walk<'_>, frame: usize) -> bool {
    let index = frame & (MAX_FRAMES - 1);
    let registers = &walk.state.registers;
    let cache = &mut walk.state.cache;
    let sp = slot_of(cache.base, registers.sp);
    let is_match = (frame as u32) < cache.depth
        && frame as u32 >= cache.valid_from
        && walk.state.is_return_address == 1
        && u32::from(cache.sp_slots[index]) == sp
        && is_same(walk.stack.frames[index], registers.ip)
        && cache.bps[index] == registers.bp;
    if is_match && rest_is_unchanged(walk, frame as u32) {
        return true;
    }
    let registers = &walk.state.registers;
    let cache = &mut walk.state.cache;
    // The last walk's entry of this frame is overwritten, so steps into this frame can't be compared any more.
    cache.valid_from = cache.valid_from.max(frame as u32 + 1);
    cache.sp_slots[index] = sp as u16;
    cache.bps[index] = registers.bp;
    cache.bp_slots[index] = cache.bp_slot as u16;
    if sp >= slot::NONE || cache.bp_slot > slot::NONE || walk.state.is_return_address != 1 {
        cache.recorded_from = frame as u32 + 1;
    }
    false
}

/// Whether a recorded frame is the one of this return address. One that was put on the stack by hand is recorded plus
/// one. No two calls return to addresses that are so close.
#[inline(always)]
fn is_same(frame: u64, return_address: u64) -> bool {
    frame.wrapping_sub(return_address) <= 1
}

/// Records which words a step has read. The last one is at this address.
#[inline(always)]
pub fn record_step(state: &mut WalkState, rule: Rule, last_read: u64) {
    let is_plain = matches!(rule.cfa, cfa::NONE | cfa::SP | cfa::BP | cfa::PLT);
    let cache = &mut state.cache;
    cache.bp_slot = if !is_plain {
        slot::UNKNOWN
    } else if last_read == state.registers.sp.wrapping_sub(8) {
        slot::NONE
    } else {
        match slot_of(cache.base, last_read) {
            slot::NONE => slot::UNKNOWN,
            at => at,
        }
    };
}

/// The slot of a word, counted from the base; [`slot::NONE`] if the word is out of range or not aligned.
#[inline(always)]
fn slot_of(base: u64, address: u64) -> u32 {
    let at = address.wrapping_sub(base);
    if at & 7 != 0 || at >> 3 >= u64::from(slot::NONE) {
        return slot::NONE;
    }
    (at >> 3) as u32
}

/// Whether all words that the last walk read from this frame on are unchanged.
#[inline(always)]
fn rest_is_unchanged(walk: &mut Walk<'_>, frame: u32) -> bool {
    walk.state.cache.next = frame + 1;
    // SAFETY: the callback gets the walk, which outlives the loop.
    unsafe {
        bpf_loop(
            MAX_CALLBACKS,
            compare as *mut c_void,
            (&raw mut *walk).cast::<c_void>(),
            0,
        );
    }
    let cache = &mut walk.state.cache;
    if cache.next < cache.depth {
        // Frames up to the difference need not be compared again.
        cache.valid_from = cache.next;
        return false;
    }
    cache.matched_from = frame;
    cache.is_complete = 1;
    walk.stack.head.depth = cache.depth;
    walk.stack.head.walk = walk::COMPLETE;
    true
}

/// Compares some frames, from the next one on, as far as the window reaches. Moves the window to the first
/// frame that is not in it.
#[inline(never)]
extern "C" fn compare(_: u32, walk: *mut c_void) -> i64 {
    // SAFETY: `rest_is_unchanged` passes a walk.
    let walk = unsafe { &mut *walk.cast::<Walk<'_>>() };
    for _ in 0..FRAMES_PER_CALLBACK {
        let next = walk.state.cache.next;
        if next >= walk.state.cache.depth || next as usize >= MAX_FRAMES {
            return STOP;
        }
        let index = next as usize & (MAX_FRAMES - 1);
        let cache = &walk.state.cache;
        let address = |slot: u64| cache.base.wrapping_add(slot << 3);
        let return_slot = u64::from(cache.sp_slots[index]).wrapping_sub(1);
        let bp_slot = u64::from(cache.bp_slots[index]);
        let Some(ip) = window::slot(&walk.state.window, address(return_slot)) else {
            // The frame pointer is saved below the return address, usually close to it.
            let is_close = return_slot.wrapping_sub(bp_slot) < WINDOW_SLOTS as u64;
            let start = address(if is_close { bp_slot } else { return_slot });
            window::move_to(&mut walk.state.window, start);
            return if walk.state.window.start == NO_WINDOW {
                STOP
            } else {
                CONTINUE
            };
        };
        if !is_same(walk.stack.frames[index], ip) {
            return STOP;
        }
        if bp_slot != u64::from(slot::NONE)
            && window::slot(&walk.state.window, address(bp_slot)) != Some(cache.bps[index])
        {
            return STOP;
        }
        walk.state.cache.next = next + 1;
    }
    CONTINUE
}
