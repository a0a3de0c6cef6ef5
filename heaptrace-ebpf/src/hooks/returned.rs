//! Return of the functions that allocate: the call becomes a block, or a failure.

use aya_ebpf::{
    EbpfContext,
    helpers::bpf_probe_read_user,
    macros::{uprobe, uretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use heaptrace_common::{
    counters::Counter,
    wire::{Alloc, Block, BlockKey, ThreadState, call, kind},
};

use crate::{
    caller::Caller,
    counters::{count_and_warn, next_id},
    counting_filter, declined,
    globals::is_partial,
    kernel::now,
    live::{self, free_flags},
    maps::EVENTS,
    probe_hits::hit,
    process, ring, sample, stack, thread,
};

/// Bytes that `ret` pops off the stack.
const RETURN_ADDRESS: u64 = 8;

/// Return of a function that allocates and never throws.
#[uretprobe]
pub fn alloc_return(ctx: RetProbeContext) -> u32 {
    hit(&ctx);
    // SAFETY: the kernel passes valid registers.
    let sp = unsafe { (*ctx.regs).rsp };
    returned(&ctx, sp.wrapping_sub(RETURN_ADDRESS))
}

/// A return instruction of a function that allocates or throws: an exception can't pass the trampoline of a
/// return probe. Other functions may share the instruction.
#[uprobe]
pub fn alloc_at_ret(ctx: ProbeContext) -> u32 {
    hit(&ctx);
    // SAFETY: the kernel passes valid registers.
    let sp = unsafe { (*ctx.regs).rsp };
    if is_partial()
        && let Some(caller) = Caller::current()
    {
        declined::remove(caller, sp);
    }
    returned(&RetProbeContext::new(ctx.as_ptr()), sp)
}

/// The return of a function that was entered with this stack pointer.
#[inline(always)]
fn returned(ctx: &RetProbeContext, sp: u64) -> u32 {
    if !counting_filter::leave_call(sp) {
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
    // A call inside the pending one returns with a lower stack pointer. A call whose entry was not seen has
    // nothing pending.
    if state.sp == 0 || sp != state.sp {
        return 0;
    }
    let pending = state.call;
    let address = match pending {
        call::POSIX_MEMALIGN if value as u32 != 0 => 0,
        call::POSIX_MEMALIGN => match stored(ctx, state.pointer) {
            Some(address) => address,
            None => {
                thread::clear_pending(state);
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
        if call::is_reallocation(pending) && state.pointer != 0 && state.old_block.id == 0 {
            process::count_untracked(caller.tgid());
        }
        allocated(ctx, caller, state, address);
    }
    state.old_block.id = 0;
    thread::clear_pending(state);
    0
}

/// The block that `posix_memalign` has stored.
#[inline(always)]
pub(super) fn stored(ctx: &impl EbpfContext, at: u64) -> Option<u64> {
    // SAFETY: the helper checks the address.
    let address = unsafe { bpf_probe_read_user(at as *const u64) };
    if address.is_err() {
        count_and_warn!(
            ctx,
            Counter::ResultUnreadable,
            "{} results of posix_memalign can't be read"
        );
    }
    address.ok()
}

/// The call returned no block: it failed, or it is a realloc to 0 bytes, which frees.
#[inline(always)]
fn not_allocated(ctx: &RetProbeContext, caller: Caller, state: &mut ThreadState) {
    let is_free = match state.call {
        call::REALLOC => state.size == 0 && state.pointer != 0,
        call::REALLOC_OR_FREE => {
            if state.size != 0 {
                process::count_failed(caller.tgid());
            }
            state.pointer != 0
        }
        _ => false,
    };
    if !is_free {
        // If a block can't grow in place, that is no failure.
        if !matches!(state.call, call::RESIZE | call::REALLOC_OR_FREE) {
            process::count_failed(caller.tgid());
        }
        if state.old_block.id != 0 {
            live::put_back(state.process, state.pointer, state.old_block);
        }
    } else if state.old_block.id == 0 {
        process::count_untracked(caller.tgid());
    } else if !live::send_free(state, caller.tid(), state.old_block.id) {
        live::park(ctx, state.process, state.old_block);
    }
}

/// The call returned a block. Its event is reserved in the ring before the block enters the live map.
#[inline(always)]
pub(super) fn allocated(
    ctx: &RetProbeContext,
    caller: Caller,
    state: &mut ThreadState,
    address: u64,
) {
    let process = state.process;
    if state.mean == 0 {
        // The call itself is not sampled. Only the free of its old block is recorded.
        if state.old_block.id != 0 && !live::send_free(state, caller.tid(), state.old_block.id) {
            live::park(ctx, process, state.old_block);
        }
        return;
    }
    if !is_partial() {
        sample::count_size(state.size);
    }
    let key = BlockKey { address, process };
    let event = stack::id(ctx, &mut state.stack, process)
        .and_then(|stack| EVENTS.reserve::<Alloc>(0).map(|event| (stack, event)));
    let Some((stack, mut event)) = event else {
        count_and_warn!(ctx, Counter::RingFull, "the ring is full: {} events lost");
        process::count_lost(caller.tgid());
        // A block in the live map at this address was freed unseen.
        if let Some(stale) = live::confirmed(key) {
            live::mark_freed(key, stale);
        }
        if state.old_block.id != 0 {
            live::park(ctx, process, state.old_block);
        }
        return;
    };
    let id = next_id();
    let block = Block {
        id,
        size: state.size,
        freed_at: 0,
        hint: 0,
    };
    let Ok(replaced) = live::add(key, block) else {
        event.discard(ring::QUIETLY);
        count_and_warn!(
            ctx,
            Counter::LiveMapFull,
            "the live map is full: {} allocations lost"
        );
        process::count_lost(caller.tgid());
        if state.old_block.id != 0 && !live::send_free(state, caller.tid(), state.old_block.id) {
            live::park(ctx, process, state.old_block);
        }
        return;
    };
    let time = now();
    event.write(Alloc {
        kind: kind::ALLOC,
        flags: free_flags(state, state.old_block.id),
        tid: caller.tid(),
        time,
        process,
        id,
        stack,
        address,
        size: state.size,
        freed: state.old_block.id,
        replaced,
        mean: state.mean,
    });
    event.submit(ring::soon(time));
    state.last_block = id;
    state.last_block_mark = sample::call_mark(state);
}
