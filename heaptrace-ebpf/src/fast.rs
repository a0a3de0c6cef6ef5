//! The fast path: code of ours in a process, which calls the allocator behind its probe unless the call is sampled.
//!
//! That code decides about a call by a countdown of its own, and passes its decision in registers that no function
//! takes arguments in: `r10` holds this run's cookie, mixed with the stack pointer and the return address, `r11` the mean of a sampled call or 0, `r9` a mark that changes
//! with each call of the thread. A call without the cookie came another way, and is decided here as always.
//!
//! The code must know which blocks are recorded, or it would pass over their frees. The kernel program tells it by
//! hints (`heaptrace_common::hints`). A hint is set before its block's address is returned, and cleared when the block
//! has left the live map.
//!
//! Where every call is recorded, the code decides nothing: it makes the call, and a probe in it records the block (`hooks/done.rs`).

use aya_ebpf::{
    helpers::{bpf_get_current_pid_tgid, bpf_probe_read_user, generated::bpf_send_signal_thread},
    programs::ProbeContext,
};
use heaptrace_common::{
    hints::{PASSED_AT, PASSED_FROM, address_slot, page_slot, value, way},
    wire::setting,
};

use crate::{
    caller::{allocator_code, return_address},
    counters::add,
    globals::{FAST, FAST_COOKIE},
    kernel::thread_block,
    maps::{FAST_PROCESSES, HINTS, SETTINGS, STOPS},
};

/// What the fast path's code decided about a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The call did not come from there.
    Open,
    /// The call is not sampled, or belongs to one that is not.
    Declined,
    /// The call is sampled, under this mean.
    Sampled(u64),
}

/// The decision about the call that was entered with this stack pointer.
#[inline(always)]
pub fn decision(ctx: &ProbeContext, sp: u64) -> Decision {
    if FAST.load() == way::NONE {
        return Decision::Open;
    }
    let is_fast = hint_of_caller(0) != 0;
    if is_from_there(ctx) {
        return match mean(ctx) {
            // Without hints the free would not be seen.
            mean if mean != 0 && is_fast => Decision::Sampled(mean),
            _ => Decision::Declined,
        };
    }
    if is_fast && is_part_of_passed(ctx, sp) {
        return Decision::Declined;
    }
    Decision::Open
}

/// Whether a call is part of one that the code makes now, and records itself, in a run that records every call.
#[inline(always)]
pub fn is_inside_recorded(ctx: &ProbeContext, sp: u64) -> bool {
    FAST.load() == way::EXACT && entry_of_caller() != 0 && is_part_of_passed(ctx, sp)
}

/// Whether a call is part of one that the code passed on without a trap, and that still runs: the allocator's own code
/// makes it, or it is the tail call of the function that was passed on.
#[inline(always)]
fn is_part_of_passed(ctx: &ProbeContext, sp: u64) -> bool {
    let word = |offset: u64| {
        // SAFETY: the helper checks the address.
        unsafe { bpf_probe_read_user((thread_block() + offset) as *const u64) }.unwrap_or(0)
    };
    let (from, at) = (word(PASSED_FROM), word(PASSED_AT));
    if from == 0 || sp > at || return_address(at) != Some(from) {
        return false;
    }
    sp == at || allocator_code(ctx).contains(return_address(sp).unwrap_or(0))
}

/// Whether a call comes from the fast path's code, which has decided about it.
#[inline(always)]
fn is_from_there(ctx: &ProbeContext) -> bool {
    if FAST.load() != way::SAMPLED {
        return false;
    }
    // SAFETY: the kernel passes valid registers.
    let (mixed, sp) = unsafe { ((*ctx.regs).r10, (*ctx.regs).rsp) };
    // Without the return address, what an earlier call has left in the register would count for this one.
    mixed != 0 && return_address(sp).is_some_and(|from| mixed ^ sp ^ from == FAST_COOKIE.load())
}

/// The mean of a call that comes from there.
#[inline(always)]
pub fn mean(ctx: &ProbeContext) -> u64 {
    // SAFETY: the kernel passes valid registers.
    unsafe { (*ctx.regs).r11 }
}

/// A mark that changes with each call of this thread, never 0; 0 if this call does not come from there.
#[inline(always)]
pub fn mark(ctx: &ProbeContext) -> u64 {
    if is_from_there(ctx) {
        // SAFETY: the kernel passes valid registers.
        unsafe { (*ctx.regs).r9 | 1 << 63 }
    } else {
        0
    }
}

/// One more than the index of the hint array of the calling process, for a block at this address; 0 if the process has
/// none, or no block can be there.
#[inline(always)]
pub fn hint_of_caller(address: u64) -> u64 {
    // Where every call is recorded, every free traps.
    if FAST.load() != way::SAMPLED || address >> 63 != 0 {
        return 0;
    }
    entry_of_caller()
}

/// The entry of the calling process in the map of processes on the fast path; 0 if it is not there.
#[inline(always)]
fn entry_of_caller() -> u64 {
    let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
    // SAFETY: the number is copied at once. The entry of a running process stays.
    unsafe { FAST_PROCESSES.get(tgid) }.copied().unwrap_or(0)
}

/// Counts a block in a hint array, or uncounts it. `hint` is one more than the index of the array, 0 for none.
#[inline(always)]
pub fn change_hint(hint: u64, address: u64, by: i64) {
    if FAST.load() == way::SAMPLED && hint != 0 {
        change(hint as u32 - 1, address, by);
    }
}

#[inline(never)]
fn change(index: u32, address: u64, by: i64) {
    let by = by as u64;
    for (slot, change) in [
        (address_slot(address), value(address).wrapping_mul(by)),
        (page_slot(address), by),
    ] {
        if let Some(slot) = HINTS.get_value_ptr_mut(index, &slot) {
            // SAFETY: the pointer comes from a lookup in this program; the value is an aligned u64.
            unsafe { add(slot, change) };
        }
    }
}

/// Sends this thread the signal that stops it, if the agent asked for that. A probe hit is in user mode, so no system
/// call is interrupted.
#[inline(always)]
pub fn stop_if_asked() {
    if FAST.load() != way::NONE && SETTINGS.get(setting::STOPS) != Some(&0) {
        stop();
    }
}

#[inline(never)]
fn stop() {
    let tid = bpf_get_current_pid_tgid() as u32;
    // SAFETY: the number is copied at once. Only the agent adds entries, and only this thread removes its own.
    if let Some(signal) = unsafe { STOPS.get(tid) }.copied()
        && STOPS.remove(tid).is_ok()
    {
        // SAFETY: the helper has no preconditions.
        unsafe { bpf_send_signal_thread(signal) };
    }
}

/// A forked child has the code, the slots and the hint array of its parent.
#[inline(always)]
pub fn inherit(parent: u32, child: u32) {
    if FAST.load() == way::NONE {
        return;
    }
    // SAFETY: as in `hint_of_caller`; the parent runs.
    if let Some(hint) = unsafe { FAST_PROCESSES.get(parent) }.copied() {
        // The map has as many entries as the map of processes.
        let _ = FAST_PROCESSES.insert(child, hint, 0);
    }
}

/// A process that ends or calls exec leaves the fast path.
#[inline(always)]
pub fn leave(tgid: u32) {
    if FAST.load() != way::NONE {
        let _ = FAST_PROCESSES.remove(tgid);
    }
}
