//! Return of the functions that allocate: the call becomes a block, or a failure.

use aya_ebpf::{
    EbpfContext as _,
    helpers::bpf_probe_read_user,
    macros::{uprobe, uretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use heaptrace_common::{
    counters::Counter,
    wire::{Alloc, Block, BlockKey, ThreadState, call, kind},
};

use super::hit;
use crate::{
    counters::{count_and_warn, next_id},
    decided,
    live::{self, free_flags, now},
    maps::EVENTS,
    places, process, ring, sample, stack,
    thread::{self, Caller},
};

/// Bytes that `ret` takes off the stack.
const RETURN_ADDRESS: u64 = 8;

/// Return of a function that allocates and never throws.
#[uretprobe]
pub fn alloc_return(ctx: RetProbeContext) -> u32 {
    hit(&ctx);
    // SAFETY: the kernel passes valid registers.
    let sp = unsafe { (*ctx.regs).rsp };
    returned(&ctx, sp.wrapping_sub(RETURN_ADDRESS))
}

/// A return instruction of a function that allocates or throws: an exception can't pass the trampoline
/// of a return probe. The instruction may also be one that other functions end with.
#[uprobe]
pub fn alloc_at_ret(ctx: ProbeContext) -> u32 {
    hit(&ctx);
    // SAFETY: the kernel passes valid registers.
    let sp = unsafe { (*ctx.regs).rsp };
    if sample::is_partial()
        && let Some(caller) = Caller::current()
    {
        decided::forget(caller, sp);
    }
    returned(&RetProbeContext::new(ctx.as_ptr()), sp)
}

/// The return of a function that was entered with this stack pointer.
#[inline(always)]
fn returned(ctx: &RetProbeContext, sp: u64) -> u32 {
    if !places::leave(sp) {
        return 0;
    }
    let Some(caller) = Caller::current() else {
        return 0;
    };
    let Some(state) = caller.state() else {
        return 0;
    };
    // SAFETY: the kernel passes valid registers.
    let value = unsafe { (*ctx.regs).rax };
    // A call inside the pending one returns with a lower stack pointer; one that was not seen
    // entering has nothing pending.
    if state.sp == 0 || sp != state.sp {
        return 0;
    }
    let pending = state.call;
    let address = match pending {
        call::POSIX_MEMALIGN if value as u32 != 0 => 0,
        // SAFETY: the helper checks the address.
        call::POSIX_MEMALIGN => match unsafe { bpf_probe_read_user(state.pointer as *const u64) } {
            Ok(address) => address,
            Err(_) => {
                count_and_warn!(
                    ctx,
                    Counter::ResultUnreadable,
                    "{} results of posix_memalign can't be read"
                );
                thread::settle(state);
                return 0;
            }
        },
        call::RESIZE if value < state.size => 0,
        call::RESIZE => state.pointer,
        _ => value,
    };
    if address == 0 {
        not_allocated(ctx, caller, state);
    } else {
        if is_reallocation(pending) && state.pointer != 0 && state.taken.id == 0 {
            process::untracked(caller.tgid());
        }
        allocated(ctx, caller, state, address);
    }
    state.taken.id = 0;
    thread::settle(state);
    0
}

/// Whether a call gives one block for another.
#[inline(always)]
fn is_reallocation(call: u32) -> bool {
    matches!(call, call::REALLOC | call::REALLOC_OR_FREE | call::RESIZE)
}

/// Nothing came back: a failure, or a realloc to nothing, which frees.
#[inline(always)]
fn not_allocated(ctx: &RetProbeContext, caller: Caller, state: &mut ThreadState) {
    let is_free = match state.call {
        call::REALLOC => state.size == 0 && state.pointer != 0,
        call::REALLOC_OR_FREE => {
            if state.size != 0 {
                process::failed(caller.tgid());
            }
            state.pointer != 0
        }
        _ => false,
    };
    if !is_free {
        // That a block can't grow where it stands is an answer, and no failure.
        if !matches!(state.call, call::RESIZE | call::REALLOC_OR_FREE) {
            process::failed(caller.tgid());
        }
        if state.taken.id != 0 {
            live::put_back(state.process, state.pointer, state.taken);
        }
    } else if state.taken.id == 0 {
        process::untracked(caller.tgid());
    } else if !live::send_free(state, caller.tid(), state.taken.id) {
        live::park(ctx, state.process, state.taken);
    }
}

/// A block came back. Its event has a place in the ring before it enters the live map.
#[inline(always)]
fn allocated(ctx: &RetProbeContext, caller: Caller, state: &mut ThreadState, address: u64) {
    let process = state.process;
    if state.mean == 0 {
        // Not taken itself: what is left is the free of the block that it replaced.
        if state.taken.id != 0 && !live::send_free(state, caller.tid(), state.taken.id) {
            live::park(ctx, process, state.taken);
        }
        return;
    }
    if !sample::is_partial() {
        sample::count_size(state.size);
    }
    let key = BlockKey { address, process };
    let event = stack::id(ctx, &mut state.stack, process)
        .and_then(|stack| EVENTS.reserve::<Alloc>(0).map(|event| (stack, event)));
    let Some((stack, mut event)) = event else {
        count_and_warn!(ctx, Counter::RingFull, "the ring is full: {} events lost");
        process::lost(caller.tgid());
        // What stood at its address was freed unseen.
        if let Some(stale) = live::look(key) {
            live::mark(key, stale);
        }
        if state.taken.id != 0 {
            live::park(ctx, process, state.taken);
        }
        return;
    };
    let id = next_id();
    let block = Block {
        id,
        size: state.size,
        freed_at: 0,
    };
    let Ok(replaced) = live::enter(key, block) else {
        event.discard(ring::QUIETLY);
        count_and_warn!(
            ctx,
            Counter::LiveMapFull,
            "the live map is full: {} allocations lost"
        );
        process::lost(caller.tgid());
        if state.taken.id != 0 && !live::send_free(state, caller.tid(), state.taken.id) {
            live::park(ctx, process, state.taken);
        }
        return;
    };
    let time = now();
    event.write(Alloc {
        kind: kind::ALLOC,
        flags: free_flags(state, state.taken.id),
        tid: caller.tid(),
        time,
        process,
        id,
        stack,
        address,
        size: state.size,
        freed: state.taken.id,
        replaced,
        mean: state.mean,
    });
    event.submit(ring::soon(time));
    state.last_id = id;
    state.last_mark = sample::mark();
}
