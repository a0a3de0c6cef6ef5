//! What a thread's last walk came by, so that the next one ends where it comes to what is the same.
//!
//! A step up the stack follows from the registers of a frame, from the rule for its code, and from two words of the stack at
//! most: the return address, and the frame pointer where it was saved. So where the registers of a frame are those that the
//! last walk had at this depth, and all words further out that it read still hold what they held, the rest of the stack is what
//! it was. To compare words takes a fraction of what it takes to find rules for frames, and where it is so from the first frame on,
//! the stack is the last one, whose id is known.
//!
//! Rules can't have changed meanwhile: a trail counts only while the address space is as it was, and no longer than the clock
//! of the tables stands still, so that a table that is in use is noted as such. Only walks to an outermost frame leave one.
//! Steps that read anything else (through a signal's frame, or to a stack elsewhere) are not compared, nor is what is
//! further in.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_loop;
use heaptrace_common::{
    limits::MAX_FRAMES,
    unwind::{Rule, cfa},
    wire::{NO_WINDOW, Stack, Trail, WINDOW_SLOTS, WalkState, saved, walk},
};

use crate::{maps::USES, unwind::Walk, window};

/// Bytes of the stack whose places a trail can name begin at a multiple of this.
const REACH: u64 = 1 << 18;

/// Frames that are compared in one go.
const PIECE: u32 = 16;

/// Most goes: each compares so many frames, or has moved the window.
const PIECES: u32 = MAX_FRAMES as u32;

const GO_ON: i64 = 0;
const STOP: i64 = 1;

/// Begins a walk. The last trail is of no use where its rules may have changed.
#[inline(always)]
pub fn begin(state: &mut WalkState, is_same_space: bool) {
    let trail = &mut state.trail;
    let base = state.registers.sp & !(REACH - 1);
    let clock = USES.get(0).copied().unwrap_or(0);
    if !is_same_space || trail.base != base || trail.clock != clock {
        trail.known = 0;
    }
    trail.base = base;
    trail.clock = clock;
    trail.from = 0;
    trail.is_whole = 0;
    trail.same = MAX_FRAMES as u32;
    trail.saved = saved::NOWHERE;
}

/// Ends it: the trail is that of this walk from now on.
#[inline(always)]
pub fn end(stack: &mut Stack, trail: &mut Trail) {
    if trail.same != 0 {
        stack.head.id = 0;
    }
    let is_whole = trail.is_whole != 0 && stack.head.walk == walk::COMPLETE;
    trail.known = if is_whole { stack.head.depth } else { 0 };
    trail.known_from = trail.from;
}

/// Whether the stack from this frame on is that of the last walk, by the registers at hand. Else they are noted.
#[inline(always)]
pub fn meets(walk: &mut Walk<'_>, frame: usize) -> bool {
    let index = frame & (MAX_FRAMES - 1);
    let registers = &walk.state.registers;
    let trail = &mut walk.state.trail;
    let sp = place(trail.base, registers.sp);
    let is_known = (frame as u32) < trail.known
        && frame as u32 >= trail.known_from
        && walk.state.before == 1
        && u32::from(trail.sp[index]) == sp
        && walk.stack.frames[index] == registers.ip
        && trail.bp[index] == registers.bp;
    if is_known && leads_out(walk, frame as u32) {
        return true;
    }
    let registers = &walk.state.registers;
    let trail = &mut walk.state.trail;
    // Steps into this frame can't be compared any more, whatever follows: it is no longer the last walk's.
    trail.known_from = trail.known_from.max(frame as u32 + 1);
    trail.sp[index] = sp as u16;
    trail.bp[index] = registers.bp;
    trail.saved_at[index] = trail.saved as u16;
    if sp >= saved::NOWHERE || trail.saved > saved::NOWHERE || walk.state.before != 1 {
        trail.from = frame as u32 + 1;
    }
    false
}

/// Notes which words a step has read, the last of them at this address.
#[inline(always)]
pub fn step(state: &mut WalkState, rule: Rule, last_read: u64) {
    let is_plain = matches!(rule.cfa, cfa::NONE | cfa::SP | cfa::BP | cfa::PLT);
    let trail = &mut state.trail;
    trail.saved = if !is_plain {
        saved::UNKNOWN
    } else if last_read == state.registers.sp.wrapping_sub(8) {
        saved::NOWHERE
    } else {
        match place(trail.base, last_read) {
            saved::NOWHERE => saved::UNKNOWN,
            at => at,
        }
    };
}

/// The place of a word, counted from the base; nowhere if it has none.
#[inline(always)]
fn place(base: u64, address: u64) -> u32 {
    let at = address.wrapping_sub(base);
    if at & 7 != 0 || at >> 3 >= u64::from(saved::NOWHERE) {
        return saved::NOWHERE;
    }
    (at >> 3) as u32
}

/// Whether everything that the last walk read from this frame on still holds what it held.
#[inline(always)]
fn leads_out(walk: &mut Walk<'_>, frame: u32) -> bool {
    walk.state.trail.next = frame + 1;
    // SAFETY: the callback gets the walk, which outlives the loop.
    unsafe {
        bpf_loop(
            PIECES,
            compare as *mut c_void,
            (&raw mut *walk).cast::<c_void>(),
            0,
        );
    }
    let trail = &mut walk.state.trail;
    if trail.next < trail.known {
        // What differs there is not compared again.
        trail.known_from = trail.next;
        return false;
    }
    trail.same = frame;
    trail.is_whole = 1;
    walk.stack.head.depth = trail.known;
    walk.stack.head.walk = walk::COMPLETE;
    true
}

/// Compares some frames, from the next one on, as far as the window reaches, and moves it where it doesn't.
#[inline(never)]
extern "C" fn compare(_: u32, walk: *mut c_void) -> i64 {
    // SAFETY: what `leads_out` passes.
    let walk = unsafe { &mut *walk.cast::<Walk<'_>>() };
    for _ in 0..PIECE {
        let next = walk.state.trail.next;
        if next >= walk.state.trail.known || next as usize >= MAX_FRAMES {
            return STOP;
        }
        let index = next as usize & (MAX_FRAMES - 1);
        let trail = &walk.state.trail;
        let address = |place: u64| trail.base.wrapping_add(place << 3);
        let returns = u64::from(trail.sp[index]).wrapping_sub(1);
        let saved = u64::from(trail.saved_at[index]);
        let Some(ip) = window::slot(&walk.state.window, address(returns)) else {
            // The frame pointer is saved below the return address, mostly close to it.
            let is_close = returns.wrapping_sub(saved) < WINDOW_SLOTS as u64;
            let start = address(if is_close { saved } else { returns });
            window::move_to(&mut walk.state.window, start);
            return if walk.state.window.start == NO_WINDOW {
                STOP
            } else {
                GO_ON
            };
        };
        if ip != walk.stack.frames[index] {
            return STOP;
        }
        if saved != u64::from(saved::NOWHERE)
            && window::slot(&walk.state.window, address(saved)) != Some(trail.bp[index])
        {
            return STOP;
        }
        walk.state.trail.next = next + 1;
    }
    GO_ON
}
