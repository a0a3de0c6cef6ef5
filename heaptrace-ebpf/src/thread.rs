//! The state of each thread: its pending call, and whether a new call is inside it.

use aya_ebpf::{bindings::BPF_NOEXIST, programs::ProbeContext};
use heaptrace_common::{
    counters::Counter,
    wire::{ThreadState, call, has},
};

use crate::{
    caller::{self, Caller},
    counters::{count, count_and_warn},
    counting_filter, declined, fast,
    globals::is_partial,
    java, live, mapping_cache,
    maps::{BLANK_THREAD, MAP_CALLS, THREADS},
    process, python, raw, sample, v8,
};

/// State of the thread, which is created if there is none; `None` if the thread can't be recorded.
#[inline(always)]
pub fn state(ctx: &ProbeContext, caller: Caller) -> Option<&'static mut ThreadState> {
    match caller.state() {
        Some(state) => Some(state),
        None => begin(ctx, caller),
    }
}

/// State of the thread at the entry of an allocator function; `None` if the call is inside another one, or
/// can't be recorded. If the state still has a pending call, this one is its tail call.
#[inline(always)]
pub fn enter(ctx: &ProbeContext, caller: Caller, sp: u64) -> Option<&'static mut ThreadState> {
    let state = state(ctx, caller)?;
    if state.sp != 0 {
        if sp < state.sp
            && caller::is_internal(ctx, sp, |from| caller::is_entered_code(state, from))
            && caller::is_pending(state)
        {
            caller::enter_nested_allocator(ctx, state);
            count(Counter::NestedCalls);
            return None;
        }
        // In a partial run, only tail calls of functions without a return probe get here.
        let is_tail_call = sp == state.sp
            && match state.return_address {
                0 => !is_partial(),
                _ => caller::is_pending(state),
            };
        if is_tail_call {
            // For the caller, a tail call and the call before it are one call. The stack stays as it was
            // captured, before the kernel replaced the return address by its trampoline.
            put_back_old_block(state);
        } else {
            // A function that may throw most probably did: it found no memory.
            if state.return_address != 0 {
                process::count_failed(caller.tgid());
            } else {
                count(Counter::AbandonedCalls);
            }
            abandon(state);
        }
    }
    Some(state)
}

/// Sets the pending call of a thread. Its stack must be walked next if the result is true; else its old block has been
/// taken out of the live map.
#[inline(always)]
#[must_use]
pub fn set_pending(
    ctx: &ProbeContext,
    state: &mut ThreadState,
    sp: u64,
    call: u32,
    size: u64,
    pointer: u64,
    mean: u64,
) -> bool {
    // A function may round its size up before its tail call. The requested size is the one at the first entry.
    let keeps_size = state.sp == sp
        && state.return_address == 0
        && state.call == call
        && matches!(call, call::ALLOC | call::REALLOC);
    state.return_address = 0;
    state.returned = 0;
    state.last_freed = 0;
    state.last_free_sp = 0;
    state.fast_mark = fast::mark(ctx);
    state.mean = mean;
    state.call = call;
    if !keeps_size {
        state.size = size;
    }
    state.pointer = pointer;
    state.old_block.id = 0;
    let is_new = state.sp != sp;
    if is_new {
        state.sp = sp;
        counting_filter::add_pending_call(sp);
    }
    let needs_stack = is_new && mean != 0;
    if !needs_stack {
        begin_call(ctx, state);
    }
    needs_stack
}

/// Drops the pending call again if its stack shows that it is inside a call that was not sampled. Otherwise it begins.
#[inline(always)]
pub fn walked(ctx: &ProbeContext, state: &mut ThreadState) {
    if !is_partial() || !sample::is_inside_unsampled(ctx, state) {
        begin_call(ctx, state);
        return;
    }
    count(Counter::NestedCalls);
    if state.return_address != 0
        && let Some(caller) = Caller::current()
    {
        declined::record(ctx, caller, state.sp, state.return_address);
    }
    clear_pending(state);
}

/// Begins a call that is inside no other one. A block that it replaces leaves the live map, before another thread can get
/// its address.
#[inline(always)]
fn begin_call(ctx: &ProbeContext, state: &mut ThreadState) {
    caller::enter_allocator(ctx, state);
    if call::is_reallocation(state.call)
        && state.pointer != 0
        && let Some(block) = live::take(state.process, state.pointer)
    {
        state.old_block = block;
    }
}

/// Drops a pending call that will not return.
#[inline(always)]
pub fn abandon(state: &mut ThreadState) {
    put_back_old_block(state);
    clear_pending(state);
}

/// Clears the pending call of a thread.
#[inline(always)]
pub fn clear_pending(state: &mut ThreadState) {
    if state.sp != 0 {
        counting_filter::remove_pending_call(state.sp);
        state.sp = 0;
    }
}

/// Puts the block that realloc took out back into the live map.
#[inline(always)]
fn put_back_old_block(state: &mut ThreadState) {
    if state.old_block.id != 0 {
        live::put_back(state.process, state.pointer, state.old_block);
        state.old_block.id = 0;
    }
}

/// Records where a call without a return probe returns to, so that it can be told later whether the call is
/// still running. It is recorded with the call if the call is pending, else with the declined calls.
#[inline(always)]
pub fn record_return_address(ctx: &ProbeContext, sp: u64) {
    let Some(caller) = Caller::current() else {
        return;
    };
    let return_address = caller::return_address(sp).unwrap_or(0);
    match caller.state() {
        Some(state) if state.sp == sp => state.return_address = return_address,
        _ if is_partial() => declined::record(ctx, caller, sp, return_address),
        _ => {}
    }
}

#[inline(always)]
fn begin(ctx: &ProbeContext, caller: Caller) -> Option<&'static mut ThreadState> {
    let process = process::find_or_begin(ctx, caller.tgid())?;
    let blank = BLANK_THREAD.get(0)?;
    // Whether it failed shows in the lookup that follows.
    let _ = THREADS.insert(caller.key, blank, u64::from(BPF_NOEXIST));
    let Some(state) = caller.state() else {
        count_and_warn!(
            ctx,
            Counter::ThreadMapFull,
            "the thread map is full: {} calls lost"
        );
        process::count_lost(caller.tgid());
        return None;
    };
    state.process = process;
    let first = Caller {
        key: caller.key & !0xffff_ffff | caller.key >> 32,
    };
    if first.key != caller.key
        && let Some(first) = first.state()
    {
        mapping_cache::copy_all(&mut state.walk, &first.walk);
        state.walk.python_base = first.walk.python_base;
        state.walk.python_image = first.walk.python_image;
        state.walk.v8_image = first.walk.v8_image;
        // If that thread ended just now, its memory may belong to a thread of another process (see `maps`).
        // SAFETY: a reference is valid to read from.
        if unsafe { (&raw const first.process).read_volatile() } != process {
            mapping_cache::clear(&mut state.walk);
            state.walk.python_image = 0;
            state.walk.v8_image = 0;
        }
    }
    Some(state)
}

/// Removes the state of a thread that ends, or whose process calls `exec`.
#[inline(always)]
pub fn end(key: u64) {
    if let Some(state) = (Caller { key }).state() {
        clear_pending(state);
        if state.walk.python_image != 0 {
            python::end(key);
        }
        if state.walk.v8_image != 0 {
            v8::end(key);
        }
        if state.walk.has & has::RAW_WALK != 0 {
            raw::end(key);
        }
        if state.walk.has & has::JAVA_STACK != 0 {
            java::end(key);
        }
    }
    let _ = THREADS.remove(key);
    let _ = MAP_CALLS.remove(key);
}
