//! Processes: who they are, when they begin and end.

use aya_ebpf::{
    EbpfContext,
    bindings::BPF_NOEXIST,
    helpers::{
        bpf_probe_read_kernel,
        generated::{bpf_get_current_cgroup_id, bpf_get_current_task},
    },
};
use heaptrace_common::{
    counters::Counter,
    limits::COMM_BYTES,
    wire::{ProcessBegin, ProcessEnd, ProcessState, kind},
};

use crate::{
    choice,
    counters::{add_one, count_and_warn, next_id},
    globals::{
        AGENT_TGID, TASK_COMM, TASK_GROUP_LEADER, TASK_REAL_PARENT, TASK_START_BOOTTIME, TASK_TGID,
    },
    live::now,
    maps::{ENDED, EVENTS, PROCESSES},
    ring,
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

/// Serial number of the record of a process; begins one where there is none.
/// `None` where the process is not to be traced.
#[inline(always)]
pub fn serial(ctx: &impl EbpfContext, tgid: u32) -> Option<u64> {
    if let Some(state) = find(tgid) {
        if let Some(process) = recorded(&state) {
            return Some(process);
        }
        if !choice::may_have_changed(state.user) {
            return None;
        }
        let _ = PROCESSES.remove(tgid);
    }
    // Not asked within `begin`: the stacks of both would be too much for one program.
    if !choice::is_wanted(tgid) {
        refuse(tgid, choice::user());
        return None;
    }
    begin(ctx, tgid)
}

/// Serial number of the record of a process, where it has one.
#[inline(always)]
pub fn known(tgid: u32) -> Option<u64> {
    find(tgid).as_ref().and_then(recorded)
}

/// State of a process. What a process was refused as is removed when its user changes, and the memory may be
/// another process's at once.
#[inline(always)]
fn find(tgid: u32) -> Option<ProcessState> {
    // SAFETY: the entry is copied at once, and the copy looked at: see `maps`.
    let state = unsafe { PROCESSES.get_ptr(tgid)?.read_volatile() };
    (state.tgid == tgid).then_some(state)
}

/// Serial number of a record; `None` where the process is not to be traced.
#[inline(always)]
fn recorded(state: &ProcessState) -> Option<u64> {
    (state.process != 0).then_some(state.process)
}

#[inline(never)]
fn begin(ctx: &impl EbpfContext, tgid: u32) -> Option<u64> {
    let process = next_id();
    // The record reaches the ring before anything refers to it.
    let Some(mut event) = EVENTS.reserve::<ProcessBegin>(0) else {
        no_place_in_ring(ctx);
        return None;
    };
    event.write(ProcessBegin {
        kind: kind::PROCESS_BEGIN,
        pad: 0,
        tgid,
        time: now(),
        process,
        start_time: start_time(),
        comm: name(),
        // SAFETY: takes no arguments.
        cgroup: unsafe { bpf_get_current_cgroup_id() },
    });
    let state = ProcessState {
        process,
        user: choice::user(),
        tgid,
        ..NO_RECORD
    };
    match PROCESSES.insert(tgid, state, u64::from(BPF_NOEXIST)) {
        Ok(()) => {
            // What the agent reads of the process, it must read while that lives.
            event.submit(ring::AT_ONCE);
            Some(process)
        }
        Err(_) => {
            event.discard(ring::QUIETLY);
            // Another thread of the process may have been first, with a record or with a refusal.
            if let Some(state) = find(tgid) {
                return recorded(&state);
            }
            no_place_in_map(ctx);
            None
        }
    }
}

/// Remembers that a process is not wanted.
#[inline(never)]
fn refuse(tgid: u32, user: u32) {
    let unwanted = ProcessState {
        user,
        tgid,
        ..NO_RECORD
    };
    // Where there is no place for it, it is asked again with each call, and costs more.
    let _ = PROCESSES.insert(tgid, unwanted, u64::from(BPF_NOEXIST));
}

#[inline(never)]
fn no_place_in_ring(ctx: &impl EbpfContext) {
    count_and_warn!(ctx, Counter::RingFull, "the ring is full: {} events lost");
}

#[inline(never)]
fn no_place_in_map(ctx: &impl EbpfContext) {
    count_and_warn!(
        ctx,
        Counter::ProcessMapFull,
        "the process map is full: {} calls lost"
    );
}

/// The name of the current process, which is that of its first thread; zeros where that can't be read.
#[inline(always)]
pub fn name() -> [u8; COMM_BYTES] {
    // SAFETY: as in `leader`.
    unsafe { read(leader(), TASK_COMM.load()) }
}

/// When the current process started, on the boot clock; 0 where that can't be read.
#[inline(always)]
fn start_time() -> u64 {
    // SAFETY: as in `leader`.
    unsafe { read(leader(), TASK_START_BOOTTIME.load()) }
}

/// Whether the agent has started the current process, which reads files for it then. Asked only where everybody is
/// reached; elsewhere the agent starts what is to be traced.
#[inline(always)]
pub fn is_agents_child() -> bool {
    let agent = AGENT_TGID.load();
    if agent == 0 {
        return false;
    }
    // SAFETY: as in `leader`.
    let parent: u64 = unsafe { read(leader(), TASK_REAL_PARENT.load()) };
    // SAFETY: as in `leader`.
    let tgid: u32 = unsafe { read(parent, TASK_TGID.load()) };
    tgid == agent
}

/// The kernel's record of the current process's first thread.
#[inline(always)]
fn leader() -> u64 {
    // SAFETY: reads at an offset that the kernel's own BTF gives; a wrong one yields an error.
    unsafe { read(bpf_get_current_task(), TASK_GROUP_LEADER.load()) }
}

/// Reads a member of a kernel struct; 0 where that fails.
///
/// # Safety
///
/// None that matters: the helper checks the address.
#[inline(always)]
pub unsafe fn read<T: Copy + Default>(base: u64, offset: u32) -> T {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel((base + u64::from(offset)) as *const T) }.unwrap_or_default()
}

/// Counts a failed call.
#[inline(always)]
pub fn failed(tgid: u32) {
    if let Some(state) = PROCESSES.get_ptr_mut(tgid) {
        // SAFETY: the pointer comes from a lookup; the field is an aligned u64. The entry of a process that is recorded
        // stays until it ends.
        unsafe { add_one(&raw mut (*state).failed) };
    }
}

/// Counts a free of a block that was not recorded.
#[inline(always)]
pub fn untracked(tgid: u32) {
    if let Some(state) = PROCESSES.get_ptr_mut(tgid) {
        // SAFETY: as in `failed`.
        unsafe { add_one(&raw mut (*state).untracked) };
    }
}

/// Counts an allocation that found no place.
#[inline(always)]
pub fn lost(tgid: u32) {
    if let Some(state) = PROCESSES.get_ptr_mut(tgid) {
        // SAFETY: as in `failed`.
        unsafe { add_one(&raw mut (*state).lost) };
    }
}

/// Lets a vfork child run under its parent's record, in whose memory it runs.
#[inline(always)]
pub fn borrow(parent: u32, child: u32) {
    if let Some(state) = find(parent) {
        let borrowed = ProcessState {
            borrowed: 1,
            failed: 0,
            untracked: 0,
            lost: 0,
            tgid: child,
            ..state
        };
        // A full map makes the child a process of its own: its frees of the parent's blocks
        // would be missed, but a vfork child has no business with the allocator.
        let _ = PROCESSES.insert(child, borrowed, 0);
    }
}

/// Ends the record of a process.
#[inline(always)]
pub fn end(ctx: &impl EbpfContext, tgid: u32, reason: u32) {
    let Some(state) = find(tgid) else {
        return;
    };
    // Two last threads can come here at once: who removes the entry reports the end.
    if PROCESSES.remove(tgid).is_err() || state.borrowed != 0 || state.process == 0 {
        return;
    }
    let record = ProcessEnd {
        kind: kind::PROCESS_END,
        pad: 0,
        reason,
        time: now(),
        process: state.process,
        failed: state.failed,
        untracked: state.untracked,
        lost: state.lost,
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
