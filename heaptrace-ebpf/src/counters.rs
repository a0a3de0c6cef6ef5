//! Counters, and unique ids.

use core::intrinsics::{AtomicOrdering, atomic_xadd};

use aya_ebpf::helpers::generated::bpf_get_smp_processor_id;
use heaptrace_common::counters::Counter;

use crate::maps::{COUNTERS, SEQUENCE};

/// Adds one to a counter, and returns its new value on this CPU.
///
/// Atomic, although the slot belongs to this CPU: another program can preempt a program under a uprobe.
#[inline(always)]
pub fn count(counter: Counter) -> u64 {
    match COUNTERS.get_ptr_mut(counter as u32) {
        // SAFETY: the pointer comes from a lookup in this program.
        Some(slot) => 1 + unsafe { add_one(slot) },
        None => 0,
    }
}

/// Adds one to a map value, and returns the old value.
///
/// # Safety
///
/// As for [`add`].
#[inline(always)]
pub unsafe fn add_one(slot: *mut u64) -> u64 {
    // SAFETY: by this function's own condition.
    unsafe { add(slot, 1) }
}

/// Adds to a map value, and returns the old value.
///
/// The core library has no fetch-and-add for this target, because the target lacks compare-and-swap of some
/// widths. The instruction exists. The ordering must not be relaxed: LLVM (seen with 22) then emits the
/// instruction that does not fetch, and the result is the register's previous content.
///
/// # Safety
///
/// The pointer must point to an aligned u64 in a map value.
#[inline(always)]
pub unsafe fn add(slot: *mut u64, number: u64) -> u64 {
    // SAFETY: by this function's own condition.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::SeqCst }>(slot, number) }
}

/// Whether the n-th event of a kind is logged: the first, second, fourth, eighth, ….
#[inline(always)]
pub fn is_logged(nth: u64) -> bool {
    nth & nth.wrapping_sub(1) == 0
}

/// Adds one to a counter, and writes to the log if the run is verbose.
macro_rules! count_and_warn {
    ($ctx:expr, $counter:expr, $text:literal) => {{
        let nth = $crate::counters::count($counter);
        if $crate::counters::is_logged(nth) {
            aya_log_ebpf::warn!($ctx, $text, nth);
        }
    }};
}
pub(crate) use count_and_warn;

/// An id that no other call returned, and that is not 0.
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
