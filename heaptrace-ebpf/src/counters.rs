//! Counting what happened, and unique ids.

use core::intrinsics::{AtomicOrdering, atomic_xadd};

use aya_ebpf::helpers::generated::bpf_get_smp_processor_id;
use heaptrace_common::counters::Counter;

use crate::maps::{COUNTERS, SEQUENCE};

/// Adds one, and returns how often this CPU has counted it.
///
/// Atomic although the slot is this CPU's own: a program under a uprobe can be preempted by another.
#[inline(always)]
pub fn count(counter: Counter) -> u64 {
    match COUNTERS.get_ptr_mut(counter as u32) {
        // SAFETY: the pointer comes from a lookup in this program.
        Some(slot) => 1 + unsafe { add_one(slot) },
        None => 0,
    }
}

/// Adds one to a map value, and returns what it was.
///
/// # Safety
///
/// As for [`add`].
#[inline(always)]
pub unsafe fn add_one(slot: *mut u64) -> u64 {
    // SAFETY: by this function's own condition.
    unsafe { add(slot, 1) }
}

/// Adds to a map value, and returns what it was.
///
/// The core library offers no fetch-and-add for this target, which has no compare-and-swap of every
/// width; the instruction exists. The ordering must not be relaxed: for that LLVM (seen with 22)
/// takes the instruction that does not fetch, and the result is whatever stood in the register.
///
/// # Safety
///
/// The pointer must point into a map value, at an aligned u64.
#[inline(always)]
pub unsafe fn add(slot: *mut u64, number: u64) -> u64 {
    // SAFETY: by this function's own condition.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::SeqCst }>(slot, number) }
}

/// Whether the n-th event of a kind is worth a line in the log: the first, second, fourth, ….
#[inline(always)]
pub fn is_worth_a_line(nth: u64) -> bool {
    nth & nth.wrapping_sub(1) == 0
}

/// Counts, and tells the log about it when there is one that listens.
macro_rules! count_and_warn {
    ($ctx:expr, $counter:expr, $text:literal) => {{
        let nth = $crate::counters::count($counter);
        if $crate::counters::is_worth_a_line(nth) {
            aya_log_ebpf::warn!($ctx, $text, nth);
        }
    }};
}
pub(crate) use count_and_warn;

/// An id that was never given before and is not 0.
#[inline(always)]
pub fn next_id() -> u64 {
    match SEQUENCE.get_ptr_mut(0) {
        Some(slot) => {
            // SAFETY: the pointer comes from a lookup in this program.
            let sequence = unsafe { add_one(slot) } + 1;
            // SAFETY: the helper has no preconditions.
            let cpu = unsafe { bpf_get_smp_processor_id() };
            u64::from(cpu) << 48 | sequence & ((1 << 48) - 1)
        }
        None => 0,
    }
}
