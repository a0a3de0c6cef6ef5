//! Which calls are recorded: all of them, or those of some sizes, or a sample.
//!
//! Where not all are, a call that is not recorded leaves nothing behind: no state of its thread, no
//! pending call, no stack. So what is usually known of the calls around one is not known here, and
//! whether a call is inside another one has to be seen from the stack alone: as long as an allocator
//! function runs, the kernel's trampoline stands in the place of its return address.

use aya_ebpf::{
    helpers::{bpf_get_prandom_u32, bpf_probe_read_user, generated::bpf_get_smp_processor_id},
    programs::ProbeContext,
};
use heaptrace_common::{
    sampling::{self, Cpu},
    trampoline::is_trampoline,
    wire::{Countdown, ThreadState, setting, size_class},
};

use crate::{
    counters::add,
    decided,
    globals::{MAX_SIZE, MIN_SIZE, PARTIAL},
    maps::{COUNTDOWN, SETTINGS, SHIFTS, SIZES},
    places,
    thread::{self, Caller},
};

/// Whether there are calls that are not recorded.
#[inline(always)]
pub fn is_partial() -> bool {
    PARTIAL.load() != 0
}

/// Whether a call may be recorded, and then what [`takes`] has to know of the countdown. Almost all calls end
/// here where not all are recorded.
///
/// A call that another allocator function ended in, by a jump, belongs to that one, about which was
/// decided. The look at its return address takes longer than all else here, so it is looked at where the other one's
/// entry is noted, or where the call is to be taken.
#[inline(always)]
pub fn meets(sp: u64, size: u64) -> Option<i64> {
    if !is_partial() {
        return Some(0);
    }
    if places::enter(sp) && has_trampoline(sp) {
        return None;
    }
    count_size(size);
    if size < MIN_SIZE.load() || size > MAX_SIZE.load() {
        return None;
    }
    let slot = COUNTDOWN.get_ptr_mut(0)?;
    sampling::meet(&mut Here { slot, tgid: 0 }, size)
}

/// Whether such a call is recorded, and then the mean that it was taken under: 1 where all are.
///
/// A call that is inside another one by a call is found out by the walk up its stack, which only one
/// that is to be taken pays for; until then it takes its bytes off the countdown, which makes no
/// difference to the others.
#[inline(always)]
pub fn takes(ctx: &ProbeContext, caller: Caller, sp: u64, size: u64, before: i64) -> Option<u64> {
    if !is_partial() {
        return Some(1);
    }
    let slot = COUNTDOWN.get_ptr_mut(0)?;
    let tgid = caller.tgid();
    let mean = sampling::settle(&mut Here { slot, tgid }, size, before)?;
    if has_trampoline(sp) || decided::belongs(ctx, caller, sp) {
        return None;
    }
    Some(mean)
}

/// Whether the kernel's trampoline stands in the place of the return address.
#[inline(always)]
fn has_trampoline(sp: u64) -> bool {
    // SAFETY: the helper checks the address.
    is_trampoline(unsafe { bpf_probe_read_user(sp as *const u64) }.unwrap_or(0))
}

/// Counts a size, in the class of its power of two.
#[inline(always)]
pub fn count_size(size: u64) {
    if let Some(slot) = SIZES.get_ptr_mut(size_class(size)) {
        // SAFETY: the pointer comes from a lookup in this program.
        unsafe { add(slot, 1) };
    }
}

/// What changes with every call on this CPU that a sample is drawn from. Two that are the same tell
/// that there was none in between.
#[inline(always)]
pub fn mark() -> u64 {
    if !is_partial() {
        return 0;
    }
    // SAFETY: the pointer comes from a lookup; the helper has no preconditions.
    unsafe {
        let left = COUNTDOWN
            .get_ptr_mut(0)
            .map_or(0, |slot| (&raw const (*slot).left).read_volatile());
        left.wrapping_add(u64::from(bpf_get_smp_processor_id()) << 52)
    }
}

/// Whether the frames of a call lead out of the allocator's own file only to the kernel's
/// trampoline: then it is inside a call that was not taken.
#[inline(always)]
pub fn is_inside(ctx: &ProbeContext, state: &ThreadState) -> bool {
    let depth = state.stack.head.depth as usize;
    if !(2..=state.stack.frames.len()).contains(&depth) {
        return false;
    }
    let (last, before) = (
        state.stack.frames[(depth - 1) & 127],
        state.stack.frames[(depth - 2) & 127],
    );
    is_trampoline(last) && thread::is_own(ctx, before)
}

/// The CPU that this program runs on.
struct Here {
    slot: *mut Countdown,
    /// Whose call it is. Only the rest of a decision asks for it.
    tgid: u32,
}

impl Cpu for Here {
    #[inline(always)]
    fn random(&mut self) -> u64 {
        // SAFETY: the helper has no preconditions.
        unsafe { u64::from(bpf_get_prandom_u32()) << 32 | u64::from(bpf_get_prandom_u32()) }
    }

    #[inline(always)]
    fn mean(&mut self) -> u64 {
        SETTINGS.get(setting::MEAN).copied().unwrap_or(1)
    }

    #[inline(always)]
    fn shift(&mut self) -> u32 {
        // SAFETY: the number is copied at once. It may be another process's by then (see `maps`): whatever
        // it is, the sample that is taken by it says so.
        match unsafe { SHIFTS.get(self.tgid) } {
            Some(shift) => *shift,
            None => SETTINGS
                .get(setting::SHIFT)
                .map_or(0, |shift| *shift as u32),
        }
    }

    #[inline(always)]
    fn count_down(&mut self, span: u64) -> i64 {
        // SAFETY: the pointer comes from a lookup; the field is an aligned u64.
        unsafe { add(&raw mut (*self.slot).left, span.wrapping_neg()) as i64 }
    }

    #[inline(always)]
    fn begun_with(&mut self) -> u64 {
        // SAFETY: as above.
        unsafe { (&raw const (*self.slot).mean).read_volatile() }
    }

    #[inline(always)]
    fn begin(&mut self, mean: u64, gap: u64) {
        // In this order: whoever finds the new countdown must find its mean.
        // SAFETY: as above. A store of an aligned u64 is whole.
        unsafe {
            (&raw mut (*self.slot).mean).write_volatile(mean);
            (&raw mut (*self.slot).left).write_volatile(gap);
        }
    }
}
