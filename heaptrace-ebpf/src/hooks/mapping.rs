//! The functions by which a program maps memory itself (`--mmap`).
//!
//! Each successful call is one event, sent at its return with the time of its entry. Another thread may map
//! the memory that a call unmapped before that call returns; the times tell the order. The pending call is
//! kept apart from the thread's pending allocation, so that a signal handler that allocates disturbs neither.

use aya_ebpf::{
    macros::{uprobe, uretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use heaptrace_common::{
    arguments::{Argument, EntryProgram},
    counters::Counter,
    wire::{MapCall, MapChange, ThreadState, Unmapped, kind, map_flag},
};

use super::arguments::{Arguments, stack_pointer};
use super::next;
use crate::{
    caller::{self, Caller},
    counters::{count, count_and_warn, next_id},
    globals::{MAX_SIZE, MIN_SIZE},
    kernel::now,
    live,
    maps::{EVENTS, MAP_CALLS, UNMAPPED},
    probe_hits::hit,
    process, ring, stack, thread,
};

const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const MREMAP_DONTUNMAP: u64 = 4;

/// Bytes that `ret` pops off the stack.
const RETURN_ADDRESS: u64 = 8;

/// `mmap(address, length, protection, flags, …)`: anonymous memory is recorded. A mapping at a fixed address
/// replaces the memory that was mapped there.
#[uprobe]
pub fn mmap_entry(ctx: ProbeContext) -> u32 {
    const ENTRY: &EntryProgram = EntryProgram::named("mmap_entry");
    hit(&ctx);
    let arguments = Arguments::new(&ctx);
    let length = arguments.get(const { ENTRY.at(Argument::Size) });
    let flags = arguments.get(const { ENTRY.at(Argument::Flags) });
    let is_recorded =
        flags & MAP_ANONYMOUS != 0 && length >= MIN_SIZE.load() && length <= MAX_SIZE.load();
    let mut call_flags = 0;
    if is_recorded {
        call_flags |= map_flag::RECORDED;
    }
    if flags & MAP_FIXED != 0 {
        call_flags |= map_flag::REPLACES;
    }
    if call_flags != 0 && enter(&ctx, u64::from(call_flags), length, 0, 0) {
        next::walk_stack(&ctx);
    }
    0
}

/// `munmap(address, length)`.
#[uprobe]
pub fn munmap_entry(ctx: ProbeContext) -> u32 {
    const ENTRY: &EntryProgram = EntryProgram::named("munmap_entry");
    hit(&ctx);
    let arguments = Arguments::new(&ctx);
    let start = arguments.get(const { ENTRY.at(Argument::Pointer) });
    let length = arguments.get(const { ENTRY.at(Argument::OldSize) });
    // Nothing is recorded that has a stack.
    enter(&ctx, 0, 0, start, length);
    0
}

/// `mremap(address, old_length, length, flags, …)`.
#[uprobe]
pub fn mremap_entry(ctx: ProbeContext) -> u32 {
    const ENTRY: &EntryProgram = EntryProgram::named("mremap_entry");
    hit(&ctx);
    let arguments = Arguments::new(&ctx);
    let old_length = arguments.get(const { ENTRY.at(Argument::OldSize) });
    let length = arguments.get(const { ENTRY.at(Argument::Size) });
    // An old length of 0 requests a second view of shared memory, and unmaps nothing.
    if old_length == 0 {
        return 0;
    }
    let flags = arguments.get(const { ENTRY.at(Argument::Flags) });
    let (call_flags, old_length) = if flags & MREMAP_DONTUNMAP != 0 {
        (map_flag::RECORDED, 0)
    } else {
        (map_flag::RECORDED | map_flag::MOVED, old_length)
    };
    let call_flags = u64::from(call_flags | map_flag::REPLACES);
    let old_start = arguments.get(const { ENTRY.at(Argument::Pointer) });
    if enter(&ctx, call_flags, length, old_start, old_length) {
        next::walk_stack(&ctx);
    }
    0
}

/// Records a pending call. Returns whether the stack must be walked.
#[inline(never)]
fn enter(ctx: &ProbeContext, flags: u64, length: u64, old_start: u64, old_length: u64) -> bool {
    let Some(caller) = Caller::current() else {
        return false;
    };
    let Some(state) = thread::state(ctx, caller) else {
        return false;
    };
    let sp = stack_pointer(ctx);
    if state.sp != 0 {
        // An allocator maps memory for its blocks, and the blocks are recorded.
        if sp < state.sp && caller::is_pending(state) {
            count(Counter::NestedCalls);
            return false;
        }
        count(Counter::AbandonedCalls);
        thread::abandon(state);
    }
    // A library that wraps these functions calls the C library's.
    // SAFETY: as in `returned`.
    if let Some(outer) = unsafe { MAP_CALLS.get(caller.key) }
        && sp < outer.sp
        && caller::is_at_trampoline(outer.sp)
    {
        count(Counter::NestedCalls);
        return false;
    }
    let call = MapCall {
        sp,
        entered: now(),
        process: state.process,
        stack: 0,
        length: whole_pages(length),
        old_start,
        old_length: whole_pages(old_length),
        flags,
    };
    if MAP_CALLS.insert(caller.key, call, 0).is_err() {
        count_and_warn!(
            ctx,
            Counter::ThreadMapFull,
            "the thread map is full: {} calls lost"
        );
        process::count_lost(caller.tgid());
        return false;
    }
    flags & u64::from(map_flag::RECORDED) != 0
}

/// Adds the stack to the thread's pending call. It is sent now, because an allocation may need the thread's stack before
/// this call returns.
#[inline(always)]
pub(super) fn walked(ctx: &ProbeContext, caller: Caller, state: &mut ThreadState) {
    let stack = stack::id(ctx, &mut state.stack, state.process);
    // SAFETY: as in `returned`.
    let Some(call) = MAP_CALLS
        .get_ptr_mut(caller.key)
        .map(|it| unsafe { &mut *it })
    else {
        return;
    };
    match stack {
        Some(stack) => call.stack = stack,
        None => call.flags |= u64::from(map_flag::NO_STACK),
    }
}

/// Return of all these functions.
#[uretprobe]
pub fn mapping_return(ctx: RetProbeContext) -> u32 {
    hit(&ctx);
    returned(&ctx);
    0
}

#[inline(never)]
fn returned(ctx: &RetProbeContext) {
    let Some(caller) = Caller::current() else {
        return;
    };
    // SAFETY: only the thread itself writes and removes the entry under its key, and it runs one program at a
    // time.
    let Some(call) = unsafe { MAP_CALLS.get(caller.key) }.copied() else {
        return;
    };
    // SAFETY: the kernel passes valid registers.
    let (sp, value) = unsafe { ((*ctx.regs).rsp, (*ctx.regs).rax) };
    if sp.wrapping_sub(RETURN_ADDRESS) != call.sp {
        return;
    }
    let _ = MAP_CALLS.remove(caller.key);
    let has = |flag: u16| call.flags & u64::from(flag) != 0;
    let is_failed = match call.length {
        0 => value as u32 != 0,
        _ => value == u64::MAX,
    };
    if is_failed {
        if has(map_flag::RECORDED) {
            process::count_failed(caller.tgid());
        }
        return;
    }
    let time = now();
    let event = if has(map_flag::NO_STACK) {
        None
    } else {
        EVENTS.reserve::<MapChange>(0)
    };
    let Some(mut event) = event else {
        keep_unsent(ctx, caller, &call, value, time);
        return;
    };
    event.write(MapChange {
        kind: kind::MAP_CHANGE,
        flags: call.flags as u16,
        tid: caller.tid(),
        entered: call.entered,
        time,
        process: call.process,
        stack: call.stack,
        start: value,
        length: call.length,
        old_start: call.old_start,
        old_length: call.old_length,
    });
    event.submit(ring::soon(time));
}

/// Keeps the part of an unsent event that must not be lost: the memory that the call unmapped.
#[inline(always)]
fn keep_unsent(ctx: &RetProbeContext, caller: Caller, call: &MapCall, start: u64, time: u64) {
    if call.flags & u64::from(map_flag::RECORDED) != 0 {
        count_and_warn!(ctx, Counter::RingFull, "the ring is full: {} events lost");
        process::count_lost(caller.tgid());
    }
    let process = call.process;
    if call.old_length != 0 {
        keep(
            ctx,
            &Unmapped {
                process,
                start: call.old_start,
                length: call.old_length,
                before: call.entered,
            },
        );
    }
    if call.flags & u64::from(map_flag::REPLACES) != 0 {
        keep(
            ctx,
            &Unmapped {
                process,
                start,
                length: call.length,
                before: time,
            },
        );
    }
}

#[inline(always)]
fn keep(ctx: &RetProbeContext, unmapped: &Unmapped) {
    live::count_unsent_free(ctx, UNMAPPED.insert(next_id(), unmapped, 0).is_ok());
}

/// A length as the kernel maps it.
#[inline(always)]
fn whole_pages(length: u64) -> u64 {
    length.wrapping_add(0xfff) & !0xfff
}
