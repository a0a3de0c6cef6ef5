//! Records of any length, and when the agent is woken to read the ring.
//!
//! A wake-up costs the traced thread an interrupt to its own processor. In a virtual machine that costs
//! several times as much as the rest of a probe's work. So the agent is woken at intervals, not for each
//! record.

use aya_ebpf::{
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP},
    helpers::generated::bpf_ringbuf_output,
};

use crate::{
    globals::RING_FILLING_BYTES,
    maps::{EVENTS, LAST_WAKE},
};

/// Flag of a record that does not wake the agent.
pub const QUIETLY: u64 = BPF_RB_NO_WAKEUP as u64;

/// Flag of a record that wakes the agent immediately.
pub const AT_ONCE: u64 = BPF_RB_FORCE_WAKEUP as u64;

/// Longest delay of a call's record, in nanoseconds.
const DELAY: u64 = 10_000_000;

/// Longest delay of a new stack. The agent opens the stack's files when it reads it, and the process may end
/// before.
const DELAY_OF_STACKS: u64 = 1_000_000;

/// Longest delay of any record while the ring is filling up.
const DELAY_WHEN_FULL: u64 = 100_000;

/// Sends the first bytes of a record. False if the ring is full.
///
/// # Safety
///
/// The record must have so many bytes.
#[inline(always)]
pub unsafe fn output<T>(record: &mut T, bytes: u64, flags: u64) -> bool {
    // SAFETY: by this function's own condition.
    let sent = unsafe {
        bpf_ringbuf_output(
            (&raw const EVENTS).cast_mut().cast(),
            (&raw mut *record).cast(),
            bytes,
            flags,
        )
    };
    sent == 0
}

/// Flag of the record of a call at this time.
#[inline(always)]
pub fn soon(now: u64) -> u64 {
    within(DELAY, now)
}

/// Flag of the record of a new stack at this time.
#[inline(always)]
pub fn soon_for_stack(now: u64) -> u64 {
    within(DELAY_OF_STACKS, now)
}

#[inline(always)]
fn within(delay: u64, now: u64) -> u64 {
    let Some(last) = LAST_WAKE.get_ptr_mut(0) else {
        return AT_ONCE;
    };
    let is_filling =
        EVENTS.query(u64::from(BPF_RB_AVAIL_DATA)) > u64::from(RING_FILLING_BYTES.load());
    let delay = if is_filling { DELAY_WHEN_FULL } else { delay };
    // SAFETY: the pointer comes from a lookup in this program. An aligned u64 is read and written whole. If two
    // processors run this at the same time, both wake the agent, which is harmless.
    unsafe {
        if now < last.read_volatile().wrapping_add(delay) {
            return QUIETLY;
        }
        last.write_volatile(now);
    }
    AT_ONCE
}
