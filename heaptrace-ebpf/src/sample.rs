//! Which calls are recorded: all of them, those of some sizes, or a sample.
//!
//! In a partial run, a call that is not recorded leaves no trace: no thread state, no pending call, no stack.
//! So the pending call of a thread does not tell whether a new call is inside another one. The stack alone
//! tells it: while an allocator function runs, the kernel's trampoline replaces its return address.

use aya_ebpf::{
    helpers::{bpf_get_prandom_u32, generated::bpf_get_smp_processor_id},
    programs::ProbeContext,
};
use heaptrace_common::{
    sampling::{self, Cpu},
    trampoline::is_trampoline,
    wire::{Countdown, ThreadState, setting, size_class},
};

use crate::{
    caller::{self, Caller},
    counters::add,
    counting_filter, declined,
    fast::{self, Decision},
    globals::{MAX_SIZE, MIN_SIZE, is_partial},
    maps::{COUNTDOWN, SETTINGS, SHIFTS, SIZES},
    nested,
};

/// The countdown that [`draw`] gets if the fast path's code has decided already. No countdown has this value.
const DECIDED: i64 = i64::MAX - 1;

/// Whether a call may be recorded, and then the countdown before it, which [`draw`] needs. In a partial run
/// almost all calls end here.
///
/// A tail call of another allocator function belongs to that function's call, and the decision about that
/// call holds. Reading its return address takes longer than the rest of this function. So it is read here
/// only if another entry with the same stack pointer is recorded, and else in [`draw`].
#[inline(always)]
pub fn count_down(ctx: &ProbeContext, sp: u64, size: u64) -> Option<i64> {
    if !is_partial() {
        return (!fast::is_inside_recorded(ctx, sp)).then_some(0);
    }
    match fast::decision(ctx, sp) {
        Decision::Sampled(mean) => {
            count_calls(size, sampling::calls(mean, size));
            return is_wanted(size).then_some(DECIDED);
        }
        Decision::Declined => return None,
        Decision::Open => {}
    }
    let slot = COUNTDOWN.get_ptr_mut(0)?;
    let before = meets_sample(slot, sp, size);
    if before.is_none() && has_pending(slot) {
        nested::declined(ctx, sp);
    }
    before
}

#[inline(always)]
fn meets_sample(slot: *mut Countdown, sp: u64, size: u64) -> Option<i64> {
    if counting_filter::enter_call(sp) && caller::is_at_trampoline(sp) {
        return None;
    }
    count_size(size);
    if !is_wanted(size) {
        return None;
    }
    sampling::count_down(&mut Here { slot, tgid: 0 }, size)
}

/// Whether calls of this size are recorded.
#[inline(always)]
fn is_wanted(size: u64) -> bool {
    size >= MIN_SIZE.load() && size <= MAX_SIZE.load()
}

/// Whether a recorded call may be pending on this CPU.
#[inline(always)]
fn has_pending(slot: *mut Countdown) -> bool {
    // SAFETY: the pointer comes from a lookup; the field is an aligned u64.
    unsafe { (&raw const (*slot).has_pending).read_volatile() != 0 }
}

/// Whether such a call is recorded, and then the mean that it was sampled under: 1 if all calls are recorded.
///
/// Whether the allocator's own code called it shows only in the walk up its stack, and only sampled calls pay
/// for a walk. Until then the call counts down like any other, which does not bias the others.
#[inline(always)]
pub fn draw(ctx: &ProbeContext, caller: Caller, sp: u64, size: u64, before: i64) -> Option<u64> {
    if !is_partial() {
        return Some(1);
    }
    let mean = if before == DECIDED {
        fast::mean(ctx)
    } else {
        let slot = COUNTDOWN.get_ptr_mut(0)?;
        let tgid = caller.tgid();
        sampling::draw(&mut Here { slot, tgid }, size, before)?
    };
    if caller::is_at_trampoline(sp) || declined::covers(ctx, caller, sp) {
        nested::declined(ctx, sp);
        return None;
    }
    Some(mean)
}

/// Counts a size in its class.
#[inline(always)]
pub fn count_size(size: u64) {
    count_calls(size, 1);
}

#[inline(always)]
fn count_calls(size: u64, calls: u64) {
    if let Some(slot) = SIZES.get_ptr_mut(size_class(size)) {
        // SAFETY: the pointer comes from a lookup in this program.
        unsafe { add(slot, calls) };
    }
}

/// A value that changes with each call on this CPU in a partial run, or, on the fast path, with each call of this
/// thread. Two equal values mean that there was no call in between.
#[inline(always)]
pub fn call_mark(state: &ThreadState) -> u64 {
    if !is_partial() {
        return 0;
    }
    if state.fast_mark != 0 {
        return state.fast_mark;
    }
    // SAFETY: the pointer comes from a lookup; the helper has no preconditions.
    unsafe {
        let left = COUNTDOWN
            .get_ptr_mut(0)
            .map_or(0, |slot| (&raw const (*slot).left).read_volatile());
        left.wrapping_add(u64::from(bpf_get_smp_processor_id()) << 52)
    }
}

/// Whether a call is inside a call that was not sampled: its frames end at the kernel's trampoline, in the slot
/// of a call that is under way, or directly out of the allocator's own code. Another tracer's return probe has
/// the same trampoline.
#[inline(always)]
pub fn is_inside_unsampled(ctx: &ProbeContext, state: &ThreadState) -> bool {
    let depth = state.stack.head.depth as usize;
    if !(2..=state.stack.frames.len()).contains(&depth) {
        return false;
    }
    let (last, before) = (
        state.stack.frames[(depth - 1) & 127],
        state.stack.frames[(depth - 2) & 127],
    );
    // The walk stopped right after it had popped the last return address.
    let slot = state.walk.registers.sp.wrapping_sub(8);
    is_trampoline(last)
        && (counting_filter::is_entered(slot) || caller::allocator_code(ctx).contains(before))
}

/// The CPU that this program runs on.
struct Here {
    slot: *mut Countdown,
    /// The calling process. Only [`sampling::draw`] uses it.
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
        // SAFETY: the number is copied at once. By then it may belong to another process (see `maps`), but
        // any value is valid: the sample that is drawn with it says so.
        match unsafe { SHIFTS.get(self.tgid) } {
            Some(shift) => *shift,
            None => SETTINGS
                .get(setting::SHIFT)
                .map_or(0, |shift| *shift as u32),
        }
    }

    #[inline(always)]
    fn subtract(&mut self, span: u64) -> i64 {
        // SAFETY: the pointer comes from a lookup; the field is an aligned u64.
        unsafe { add(&raw mut (*self.slot).left, span.wrapping_neg()) as i64 }
    }

    #[inline(always)]
    fn mean_at_start(&mut self) -> u64 {
        // SAFETY: as above.
        unsafe { (&raw const (*self.slot).mean).read_volatile() }
    }

    #[inline(always)]
    fn restart(&mut self, mean: u64, gap: u64) {
        // In this order: a program that reads the new countdown must read its mean.
        // SAFETY: as above. A store of an aligned u64 is whole.
        unsafe {
            (&raw mut (*self.slot).mean).write_volatile(mean);
            (&raw mut (*self.slot).left).write_volatile(gap);
        }
    }
}
