//! What tells most calls that nothing is known of them, before anything is looked up.
//!
//! Only where not every call is recorded: else there is always something to look up. A count is made higher before
//! what it stands for can be found, and lower after that is gone. So it may be too high for a moment, whoever else is
//! at it, and never too low.

use heaptrace_common::places;

use crate::{
    counters::add,
    maps::{BLOCKS_AT, CALLS_AT},
    sample,
};

/// Whether a block at this address can be in the live map.
#[inline(always)]
pub fn may_have_block(address: u64) -> bool {
    !sample::is_partial() || BLOCKS_AT.get(places::of_block(address)) != Some(&0)
}

/// Counts a block, which is to enter the live map.
#[inline(always)]
pub fn add_block(address: u64) {
    change_blocks(address, 1);
}

/// Takes back a block, which has left the live map.
#[inline(always)]
pub fn remove_block(address: u64) {
    change_blocks(address, -1);
}

#[inline(always)]
fn change_blocks(address: u64, by: i64) {
    if sample::is_partial()
        && let Some(count) = BLOCKS_AT.get_ptr_mut(places::of_block(address))
    {
        // SAFETY: the pointer comes from a lookup in this program.
        unsafe { add(count, by as u64) };
    }
}

/// Notes that a function is entered with this stack pointer. True where another one was that has not returned, as far
/// as is known: it may have ended in this one by a jump, or been left by longjmp.
#[inline(always)]
pub fn enter(sp: u64) -> bool {
    let Some(place) = CALLS_AT.get_ptr_mut(places::of_call(sp)) else {
        return true;
    };
    // SAFETY: the pointer comes from a lookup in this program; an aligned u64 is read and written whole. Where
    // threads share a place, one note overwrites the other: the call that is missed counts twice in the statistic.
    unsafe {
        let entered = &raw mut (*place).entered;
        let is_entered = entered.read_volatile() == sp;
        if !is_entered {
            entered.write_volatile(sp);
        }
        is_entered
    }
}

/// Takes back that a function was entered, which has returned. Whether such a call can be pending.
#[inline(always)]
pub fn leave(sp: u64) -> bool {
    if !sample::is_partial() {
        return true;
    }
    let Some(place) = CALLS_AT.get_ptr_mut(places::of_call(sp)) else {
        return true;
    };
    // SAFETY: as in `enter`.
    unsafe {
        let entered = &raw mut (*place).entered;
        if entered.read_volatile() == sp {
            entered.write_volatile(0);
        }
        (&raw const (*place).pending).read_volatile() != 0
    }
}

/// Counts a call, which is pending from now on.
#[inline(always)]
pub fn add_call(sp: u64) {
    change_calls(sp, 1);
}

/// Takes back a call, which is pending no longer.
#[inline(always)]
pub fn remove_call(sp: u64) {
    change_calls(sp, -1);
}

#[inline(always)]
fn change_calls(sp: u64, by: i64) {
    if sample::is_partial()
        && let Some(place) = CALLS_AT.get_ptr_mut(places::of_call(sp))
    {
        // SAFETY: the pointer comes from a lookup in this program.
        unsafe { add(&raw mut (*place).pending, by as u64) };
    }
}
