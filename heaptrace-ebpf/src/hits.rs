//! Hits of probes, of which the agent tells what tracing costs each process.
//!
//! A hit costs its trap, whether the call is recorded or not. So each is counted, and what counting costs
//! must not matter beside a trap: one in so many is noted, at random, and stands for all of them.

use aya_ebpf::{
    bindings::BPF_NOEXIST,
    helpers::{bpf_get_current_pid_tgid, bpf_get_prandom_u32},
};
use heaptrace_common::limits::HITS_PER_NOTE;

use crate::{counters::add_one, globals::COUNT_HITS, maps::HITS};

/// Counts a hit in the current process.
#[inline(always)]
pub fn count() {
    // SAFETY: the helper has no preconditions.
    if COUNT_HITS.load() != 0 && unsafe { bpf_get_prandom_u32() } % HITS_PER_NOTE == 0 {
        note();
    }
}

#[inline(never)]
fn note() {
    let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
    match HITS.get_ptr_mut(tgid) {
        // SAFETY: the pointer comes from a lookup; values are aligned.
        Some(slot) => drop(unsafe { add_one(slot) }),
        // Another thread may have been first, or the map is full: one note less.
        None => drop(HITS.insert(tgid, 1, u64::from(BPF_NOEXIST))),
    }
}
