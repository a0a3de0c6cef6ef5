//! Counts that tell most calls that nothing is known of them, before anything is looked up.
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

/// Whether a call that was entered with this stack pointer can be pending.
#[inline(always)]
pub fn may_have_call(sp: u64) -> bool {
    !sample::is_partial() || CALLS_AT.get(places::of_call(sp)) != Some(&0)
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
        && let Some(count) = CALLS_AT.get_ptr_mut(places::of_call(sp))
    {
        // SAFETY: the pointer comes from a lookup in this program.
        unsafe { add(count, by as u64) };
    }
}
