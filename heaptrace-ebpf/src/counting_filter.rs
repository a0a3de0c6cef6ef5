//! Counting filters: they tell most calls, before any lookup, that nothing is recorded under their address.
//!
//! Used only if not every call is recorded: otherwise every lookup finds something. Addresses share slots. A
//! slot is counted up before the entry can be found, and down after the entry is gone. So a count may be too
//! high for a moment, and is never too low.

use heaptrace_common::counting_filter::{block_slot, call_slot};

use crate::{
    counters::add,
    globals::is_partial,
    maps::{BLOCK_FILTER, CALL_FILTER, COUNTDOWN},
};

/// Whether a block at this address can be in the live map.
#[inline(always)]
pub fn may_have_block(address: u64) -> bool {
    !is_partial() || BLOCK_FILTER.get(block_slot(address)) != Some(&0)
}

/// Counts a block, before it enters the live map.
#[inline(always)]
pub fn add_block(address: u64) {
    change_blocks(address, 1);
}

/// Uncounts a block, after it has left the live map.
#[inline(always)]
pub fn remove_block(address: u64) {
    change_blocks(address, -1);
}

#[inline(always)]
fn change_blocks(address: u64, by: i64) {
    if is_partial()
        && let Some(count) = BLOCK_FILTER.get_ptr_mut(block_slot(address))
    {
        // SAFETY: the pointer comes from a lookup in this program.
        unsafe { add(count, by as u64) };
    }
}

/// Records that a function is entered with this stack pointer. True if another function was entered with it
/// and did not return yet, as far as is known: this call may be its tail call, or longjmp may have left it.
#[inline(always)]
pub fn enter_call(sp: u64) -> bool {
    let Some(slot) = CALL_FILTER.get_ptr_mut(call_slot(sp)) else {
        return true;
    };
    // SAFETY: the pointer comes from a lookup in this program; an aligned u64 is read and written whole. If
    // threads share a slot, one entry overwrites the other, and the missed call counts twice in the statistic
    // of sizes.
    unsafe {
        let entered = &raw mut (*slot).entered;
        let is_entered = entered.read_volatile() == sp;
        if !is_entered {
            entered.write_volatile(sp);
        }
        is_entered
    }
}

/// Whether a function was entered with this stack pointer and did not return yet, as far as is known: if another
/// call has overwritten the slot, this is false.
#[inline(always)]
pub fn is_entered(sp: u64) -> bool {
    CALL_FILTER
        .get_ptr_mut(call_slot(sp))
        // SAFETY: as in `enter_call`.
        .is_some_and(|slot| unsafe { (&raw const (*slot).entered).read_volatile() } == sp)
}

/// Records that a function has returned. Returns whether a call with this stack pointer can be pending.
#[inline(always)]
pub fn leave_call(sp: u64) -> bool {
    if !is_partial() {
        return true;
    }
    let Some(slot) = CALL_FILTER.get_ptr_mut(call_slot(sp)) else {
        return true;
    };
    // SAFETY: as in `enter_call`.
    unsafe {
        let entered = &raw mut (*slot).entered;
        if entered.read_volatile() == sp {
            entered.write_volatile(0);
        }
        (&raw const (*slot).pending).read_volatile() != 0
    }
}

/// Counts a call that is pending from now on.
#[inline(always)]
pub fn add_pending_call(sp: u64) {
    change_pending_calls(sp, 1);
}

/// Uncounts a call that is no longer pending.
#[inline(always)]
pub fn remove_pending_call(sp: u64) {
    change_pending_calls(sp, -1);
}

#[inline(always)]
fn change_pending_calls(sp: u64, by: i64) {
    if is_partial()
        && let Some(slot) = CALL_FILTER.get_ptr_mut(call_slot(sp))
    {
        // SAFETY: the pointer comes from a lookup in this program.
        unsafe { add(&raw mut (*slot).pending, by as u64) };
        if let Some(countdown) = COUNTDOWN.get_ptr_mut(0) {
            // SAFETY: as above; an aligned u64 is written whole.
            unsafe { (&raw mut (*countdown).has_pending).write_volatile(u64::from(by > 0)) };
        }
    }
}
