//! Process records: how they begin and end, and what is counted per process.

use aya_ebpf::{EbpfContext, bindings::BPF_NOEXIST, helpers::generated::bpf_get_current_cgroup_id};
use heaptrace_common::{
    counters::Counter,
    wire::{ProcessBegin, ProcessEnd, ProcessState, end, kind},
};

use crate::{
    counters::{add_one, count_and_warn, next_id},
    kernel::{self, now},
    maps::{ENDED, EVENTS, PROCESSES},
    process_filter, ring,
};

/// State of a process without a record.
const NO_RECORD: ProcessState = ProcessState {
    process: 0,
    failed: 0,
    untracked: 0,
    lost: 0,
    borrowed: 0,
    user: 0,
    tgid: 0,
};

/// Serial number of the record of a process, which begins now if there is none. `None` if the process is not
/// selected.
#[inline(always)]
pub fn find_or_begin(ctx: &impl EbpfContext, tgid: u32) -> Option<u64> {
    if let Some(state) = state_of(tgid) {
        if let Some(process) = serial(&state) {
            return Some(process);
        }
        if !process_filter::may_have_changed(state.user) {
            return None;
        }
        let _ = PROCESSES.remove(tgid);
    }
    // Not called inside `begin`: together their stacks would be too large for a program.
    if !process_filter::is_selected(tgid) {
        remember_unselected(tgid, process_filter::user());
        return None;
    }
    begin(ctx, tgid)
}

/// Serial number of the record of a process, if it has one.
#[inline(always)]
pub fn find(tgid: u32) -> Option<u64> {
    state_of(tgid).as_ref().and_then(serial)
}

/// State of a process. The entry of an unselected process is removed when its user changes, and another
/// process's entry may reuse its memory immediately.
#[inline(always)]
fn state_of(tgid: u32) -> Option<ProcessState> {
    // SAFETY: the entry is copied first, and the copy is checked: see `maps`.
    let state = unsafe { PROCESSES.get_ptr(tgid)?.read_volatile() };
    (state.tgid == tgid).then_some(state)
}

/// Serial number of a record; `None` if the process is not selected.
#[inline(always)]
fn serial(state: &ProcessState) -> Option<u64> {
    (state.process != 0).then_some(state.process)
}

#[inline(never)]
fn begin(ctx: &impl EbpfContext, tgid: u32) -> Option<u64> {
    let process = next_id();
    // The record reaches the ring before anything refers to it.
    let Some(mut event) = EVENTS.reserve::<ProcessBegin>(0) else {
        report_full_ring(ctx);
        return None;
    };
    event.write(ProcessBegin {
        kind: kind::PROCESS_BEGIN,
        pad: 0,
        tgid,
        time: now(),
        process,
        start_time: kernel::start_time(),
        comm: kernel::process_name(),
        // SAFETY: takes no arguments.
        cgroup: unsafe { bpf_get_current_cgroup_id() },
    });
    let state = ProcessState {
        process,
        user: process_filter::user(),
        tgid,
        ..NO_RECORD
    };
    match PROCESSES.insert(tgid, state, u64::from(BPF_NOEXIST)) {
        Ok(()) => {
            // The agent must read from the process while the process lives.
            event.submit(ring::AT_ONCE);
            Some(process)
        }
        Err(_) => {
            event.discard(ring::QUIETLY);
            // Another thread of the process may have been first, and found it selected or not.
            if let Some(state) = state_of(tgid) {
                return serial(&state);
            }
            report_full_map(ctx);
            None
        }
    }
}

/// Remembers that a process is not selected.
#[inline(never)]
fn remember_unselected(tgid: u32, user: u32) {
    let unselected = ProcessState {
        user,
        tgid,
        ..NO_RECORD
    };
    // If the map is full, the filter runs again at each call, which costs more.
    let _ = PROCESSES.insert(tgid, unselected, u64::from(BPF_NOEXIST));
}

#[inline(never)]
fn report_full_ring(ctx: &impl EbpfContext) {
    count_and_warn!(ctx, Counter::RingFull, "the ring is full: {} events lost");
}

#[inline(never)]
fn report_full_map(ctx: &impl EbpfContext) {
    count_and_warn!(
        ctx,
        Counter::ProcessMapFull,
        "the process map is full: {} calls lost"
    );
}

/// Counts a failed call.
#[inline(always)]
pub fn count_failed(tgid: u32) {
    if let Some(state) = PROCESSES.get_ptr_mut(tgid) {
        // SAFETY: the pointer comes from a lookup; the field is an aligned u64. The entry of a recorded
        // process stays until the process ends.
        unsafe { add_one(&raw mut (*state).failed) };
    }
}

/// Counts a free of a block that was not recorded.
#[inline(always)]
pub fn count_untracked(tgid: u32) {
    if let Some(state) = PROCESSES.get_ptr_mut(tgid) {
        // SAFETY: as in `count_failed`.
        unsafe { add_one(&raw mut (*state).untracked) };
    }
}

/// Counts an allocation that was lost because a map or the ring was full.
#[inline(always)]
pub fn count_lost(tgid: u32) {
    if let Some(state) = PROCESSES.get_ptr_mut(tgid) {
        // SAFETY: as in `count_failed`.
        unsafe { add_one(&raw mut (*state).lost) };
    }
}

/// Gives a vfork child its parent's record, because it runs in its parent's memory.
#[inline(always)]
pub fn share_record(parent: u32, child: u32) {
    if let Some(state) = state_of(parent) {
        let borrowed = ProcessState {
            borrowed: 1,
            failed: 0,
            untracked: 0,
            lost: 0,
            tgid: child,
            ..state
        };
        // If the map is full, the child becomes a process of its own, and its frees of the parent's blocks
        // are missed. But a vfork child should not call the allocator.
        let _ = PROCESSES.insert(child, borrowed, 0);
    }
}

/// Ends the record of a process.
#[inline(always)]
pub fn end(ctx: &impl EbpfContext, tgid: u32, reason: u32) {
    let Some(state) = state_of(tgid) else {
        return;
    };
    // The two last threads of a process can end at the same time: the one that removes the entry reports the
    // end.
    if PROCESSES.remove(tgid).is_err() || state.borrowed != 0 || state.process == 0 {
        return;
    }
    let (status, out_of_memory) = match reason {
        end::EXIT => (kernel::exit_status(), kernel::is_out_of_memory().into()),
        _ => (0, 0),
    };
    let record = ProcessEnd {
        kind: kind::PROCESS_END,
        pad: 0,
        reason,
        time: now(),
        process: state.process,
        failed: state.failed,
        untracked: state.untracked,
        lost: state.lost,
        peak_pages: kernel::peak_pages(),
        status,
        out_of_memory,
    };
    if let Some(mut event) = EVENTS.reserve::<ProcessEnd>(0) {
        event.write(record);
        event.submit(ring::soon(record.time));
    } else if ENDED.insert(state.process, record, 0).is_ok() {
        count_and_warn!(
            ctx,
            Counter::EndsMarked,
            "the ring is full: {} process ends kept for a sweep"
        );
    } else {
        count_and_warn!(ctx, Counter::EndsLost, "{} process ends lost");
    }
}
