//! Calls without a return probe that were decided about, and are not recorded.
//!
//! A call that goes on in another function of the allocator is one call, so one draw has to decide about it. Where the
//! first function has a return probe, the kernel's trampoline shows in its place that it is under way. One that may throw
//! has none, so it is noted here. Only a call that is to be taken asks for it, and the note of a thread is overwritten
//! by the next one: what is lost by that is a draw too many.

use aya_ebpf::{helpers::bpf_probe_read_user, programs::ProbeContext};
use heaptrace_common::{limits::DECIDED_SLOTS, wire::Decided};

use crate::{
    maps::DECIDED,
    thread::{self, Caller},
};

/// Notes a call of this thread, by its stack pointer at its entry.
#[inline(always)]
pub fn note(caller: Caller, sp: u64, returns_to: u64) {
    if let Some(slot) = slot(caller) {
        *slot = Decided {
            thread: caller.key,
            sp,
            returns_to,
        };
    }
}

/// Takes the note of a call back, which has returned.
#[inline(always)]
pub fn forget(caller: Caller, sp: u64) {
    if let Some(slot) = slot(caller)
        && slot.thread == caller.key
        && slot.sp == sp
    {
        slot.sp = 0;
    }
}

/// Whether a call belongs to one that was decided about: that one has ended in it by a jump, or its allocator's own
/// code calls it, while what stood in the place of the first one's return address still does. True once: the next one
/// may come after an exception.
#[inline(always)]
pub fn belongs(ctx: &ProbeContext, caller: Caller, sp: u64) -> bool {
    let Some(slot) = slot(caller) else {
        return false;
    };
    if slot.thread != caller.key || slot.sp < sp {
        return false;
    }
    // SAFETY: the helper checks the address.
    let there = unsafe { bpf_probe_read_user(slot.sp as *const u64) }.unwrap_or(0);
    let belongs = there == slot.returns_to && (slot.sp == sp || thread::is_internal(ctx, sp));
    if belongs {
        slot.sp = 0;
    }
    belongs
}

/// Where this thread's note is. Another one may have the same place; each knows its own.
#[inline(always)]
fn slot(caller: Caller) -> Option<&'static mut Decided> {
    // SAFETY: the pointer comes from a lookup. Where two threads write at once, what they leave is no valid note, or
    // one of theirs.
    DECIDED
        .get_ptr_mut(caller.tid() & (DECIDED_SLOTS - 1))
        .map(|slot| unsafe { &mut *slot })
}
