//! The functions by which a program maps memory itself, where that is asked for.
//!
//! One event for each call that succeeded, sent at its return, with the time of its entry: what a call
//! gives back may be mapped anew by another thread before its own return is seen, and that is told by
//! the times. What a call may be about is written down apart from the thread's pending allocation, so
//! that a signal handler that allocates disturbs neither.

use aya_ebpf::{
    macros::{uprobe, uretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use heaptrace_common::{
    counters::Counter,
    wire::{MapCall, MapChange, Unmapped, kind, map_flag},
};

use super::{
    arguments::{Arguments, stack_pointer},
    hit,
};
use crate::{
    counters::{count, count_and_warn, next_id},
    globals::{MAX_SIZE, MIN_SIZE},
    live::{self, now},
    maps::{EVENTS, MAP_CALLS, UNMAPPED},
    process, ring, stack,
    thread::{self, Caller},
};

const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const MREMAP_DONTUNMAP: u64 = 4;

/// Bytes that `ret` takes off the stack.
const RETURN_ADDRESS: u64 = 8;

/// `mmap(address, length, protection, flags, …)`: memory of no file counts. What is mapped to an address
/// that was asked for takes the place of what was there.
#[uprobe]
pub fn mmap_entry(ctx: ProbeContext) -> u32 {
    hit(&ctx);
    let arguments = Arguments::new(&ctx);
    let (length, flags) = (arguments.get(1), arguments.get(3));
    let is_recorded =
        flags & MAP_ANONYMOUS != 0 && length >= MIN_SIZE.load() && length <= MAX_SIZE.load();
    let mut asked = 0;
    if is_recorded {
        asked |= map_flag::RECORDED;
    }
    if flags & MAP_FIXED != 0 {
        asked |= map_flag::REPLACES;
    }
    if asked != 0 {
        enter(&ctx, u64::from(asked), length, 0, 0);
    }
    0
}

/// `munmap(address, length)`.
#[uprobe]
pub fn munmap_entry(ctx: ProbeContext) -> u32 {
    hit(&ctx);
    let arguments = Arguments::new(&ctx);
    enter(&ctx, 0, 0, arguments.get(0), arguments.get(1));
    0
}

/// `mremap(address, old_length, length, flags, …)`.
#[uprobe]
pub fn mremap_entry(ctx: ProbeContext) -> u32 {
    hit(&ctx);
    let arguments = Arguments::new(&ctx);
    let (old_length, length) = (arguments.get(1), arguments.get(2));
    // One of no length asks for a second view of what is shared, and gives nothing back.
    if old_length == 0 {
        return 0;
    }
    let (asked, old_length) = if arguments.get(3) & MREMAP_DONTUNMAP != 0 {
        (map_flag::RECORDED, 0)
    } else {
        (map_flag::RECORDED | map_flag::MOVED, old_length)
    };
    let asked = u64::from(asked | map_flag::REPLACES);
    enter(&ctx, asked, length, arguments.get(0), old_length);
    0
}

#[inline(never)]
fn enter(ctx: &ProbeContext, asked: u64, length: u64, old_start: u64, old_length: u64) {
    let Some(caller) = Caller::current() else {
        return;
    };
    let Some(state) = thread::state(ctx, caller) else {
        return;
    };
    let sp = stack_pointer(ctx);
    if state.sp != 0 {
        // What an allocator maps is memory for its blocks, and these count.
        if sp < state.sp && thread::is_pending(state) {
            count(Counter::NestedCalls);
            return;
        }
        count(Counter::AbandonedCalls);
        thread::abandon(state);
    }
    let mut call = MapCall {
        sp,
        asked: now(),
        process: state.process,
        stack: 0,
        length: whole_pages(length),
        old_start,
        old_length: whole_pages(old_length),
        flags: asked,
    };
    if asked & u64::from(map_flag::RECORDED) != 0 {
        // Its stack may be needed for an allocation before the call returns: it is sent now.
        stack::take(ctx, sp, &mut state.stack, &mut state.walk);
        match stack::id(ctx, &mut state.stack, call.process) {
            Some(stack) => call.stack = stack,
            None => call.flags |= u64::from(map_flag::NO_STACK),
        }
    }
    if MAP_CALLS.insert(caller.key, call, 0).is_err() {
        count_and_warn!(
            ctx,
            Counter::ThreadMapFull,
            "the thread map is full: {} calls lost"
        );
        process::lost(caller.tgid());
    }
}

/// Return of any of them.
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
    // SAFETY: only the thread itself writes and removes what stands under its key, and it runs one program at a time.
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
            process::failed(caller.tgid());
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
        lost(ctx, caller, &call, value, time);
        return;
    };
    event.write(MapChange {
        kind: kind::MAP_CHANGE,
        flags: call.flags as u16,
        tid: caller.tid(),
        asked: call.asked,
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

/// Keeps what must not be lost of a call whose event found no place: what is mapped no more.
#[inline(always)]
fn lost(ctx: &RetProbeContext, caller: Caller, call: &MapCall, start: u64, time: u64) {
    if call.flags & u64::from(map_flag::RECORDED) != 0 {
        count_and_warn!(ctx, Counter::RingFull, "the ring is full: {} events lost");
        process::lost(caller.tgid());
    }
    let process = call.process;
    if call.old_length != 0 {
        keep(
            ctx,
            &Unmapped {
                process,
                start: call.old_start,
                length: call.old_length,
                before: call.asked,
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
    live::count_unsent(ctx, UNMAPPED.insert(next_id(), unmapped, 0).is_ok());
}

/// A length as the kernel maps it.
#[inline(always)]
fn whole_pages(length: u64) -> u64 {
    length.wrapping_add(0xfff) & !0xfff
}
