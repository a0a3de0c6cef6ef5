//! Calls without a return probe that the sampling declined.
//!
//! A call that ends in a tail call of another allocator function is one call, so one draw must decide about
//! it. If the first function has a return probe, the kernel's trampoline in its return slot shows that the
//! call is under way. A function that may throw has no return probe, so its declined call is recorded here.
//! Only a call that is about to be sampled looks here. A thread's next declined call overwrites the entry;
//! the loss is one draw too many.

use aya_ebpf::programs::ProbeContext;
use heaptrace_common::{limits::DECLINED_SLOTS, wire::DeclinedCall};

use crate::{
    caller::{self, Caller},
    maps::DECLINED,
};

/// Records a declined call of this thread, by its stack pointer at its entry.
#[inline(always)]
pub fn record(ctx: &ProbeContext, caller: Caller, sp: u64, return_address: u64) {
    if let Some(slot) = slot(caller) {
        *slot = DeclinedCall {
            thread: caller.key,
            sp,
            return_address,
            code: caller::allocator_code(ctx),
        };
    }
}

/// Removes a declined call that has returned.
#[inline(always)]
pub fn remove(caller: Caller, sp: u64) {
    if let Some(slot) = slot(caller)
        && slot.thread == caller.key
        && slot.sp == sp
    {
        slot.sp = 0;
    }
}

/// Whether a call is part of a declined call: as its tail call, or called by the code of either allocator
/// while the declined call's return address is still in its slot. True only once per declined call, because the
/// next call may come after an exception.
#[inline(always)]
pub fn covers(ctx: &ProbeContext, caller: Caller, sp: u64) -> bool {
    let Some(slot) = slot(caller) else {
        return false;
    };
    if slot.thread != caller.key || slot.sp < sp {
        return false;
    }
    let there = caller::return_address(slot.sp).unwrap_or(0);
    let is_covered = there == slot.return_address
        && (slot.sp == sp || caller::is_internal(ctx, sp, |caller| slot.code.contains(caller)));
    if is_covered {
        slot.sp = 0;
    }
    is_covered
}

/// The slot of this thread. Threads may share a slot; each entry names its thread.
#[inline(always)]
fn slot(caller: Caller) -> Option<&'static mut DeclinedCall> {
    // SAFETY: the pointer comes from a lookup. If two threads write at once, the result is no valid entry, or
    // one of theirs.
    DECLINED
        .get_ptr_mut(caller.tid() & (DECLINED_SLOTS - 1))
        .map(|slot| unsafe { &mut *slot })
}
