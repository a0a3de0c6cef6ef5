//! The first step of every probe program, and the count of probe hits per process.
//!
//! A hit costs its trap, whether the call is recorded or not. From the hits the agent computes the overhead
//! of each process. Counting must cost next to nothing beside a trap, so one hit in [`HITS_PER_COUNT`], at
//! random, is counted.

use aya_ebpf::{
    EbpfContext,
    bindings::BPF_NOEXIST,
    helpers::{bpf_get_current_pid_tgid, bpf_get_prandom_u32},
};
use heaptrace_common::{hints::way, limits::HITS_PER_COUNT};

use crate::{
    counters::add_one,
    fast,
    globals::FAST,
    maps::{LAST_HITS, PROBE_HITS},
    own_stack,
};

/// The first step of every program of a probe.
#[inline(always)]
pub fn hit(ctx: &impl EbpfContext) {
    own_stack::keep(ctx);
    fast::stop_if_asked();
    // SAFETY: the helper has no preconditions.
    if unsafe { bpf_get_prandom_u32() } % HITS_PER_COUNT == 0 {
        count();
    }
}

#[inline(never)]
fn count() {
    let key = bpf_get_current_pid_tgid();
    let tgid = (key >> 32) as u32;
    if FAST.load() != way::NONE {
        // If the map is full, the agent chooses another thread to stop.
        let _ = LAST_HITS.insert(tgid, key as u32, 0);
    }
    match PROBE_HITS.get_ptr_mut(tgid) {
        // SAFETY: the pointer comes from a lookup; values are aligned.
        Some(slot) => drop(unsafe { add_one(slot) }),
        // If another thread was first, or the map is full, one count is missing.
        None => drop(PROBE_HITS.insert(tgid, 1, u64::from(BPF_NOEXIST))),
    }
}
