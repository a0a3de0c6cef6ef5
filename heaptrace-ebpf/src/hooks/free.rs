//! Entry of the functions that free.

use aya_ebpf::{macros::uprobe, programs::ProbeContext};
use heaptrace_common::{
    arguments::{Argument, EntryProgram},
    wire::ThreadState,
};

use super::arguments::{Arguments, stack_pointer};
use crate::{
    caller::{self, Caller},
    counting_filter, fast,
    globals::is_partial,
    live,
    probe_hits::hit,
    process, thread,
};

/// `free(pointer, …)`, and every `operator delete`.
#[uprobe]
pub fn free_entry(ctx: ProbeContext) -> u32 {
    const POINTER: usize = EntryProgram::named("free_entry").at(Argument::Pointer);
    hit(&ctx);
    release(&ctx, Arguments::new(&ctx).get(POINTER));
    0
}

/// `heap_free(heap, pointer)`.
#[uprobe]
pub fn heap_free_entry(ctx: ProbeContext) -> u32 {
    const POINTER: usize = EntryProgram::named("heap_free_entry").at(Argument::Pointer);
    hit(&ctx);
    release(&ctx, Arguments::new(&ctx).get(POINTER));
    0
}

/// Most frees of a partial run end here, because their block is not recorded.
#[inline(always)]
fn release(ctx: &ProbeContext, address: u64) {
    if address != 0 && counting_filter::may_have_block(address) {
        free(ctx, address);
    }
}

#[inline(never)]
fn free(ctx: &ProbeContext, address: u64) {
    let Some(caller) = Caller::current() else {
        return;
    };
    if is_partial()
        && !process::find(caller.tgid()).is_some_and(|process| live::contains(process, address))
    {
        return;
    }
    let sp = stack_pointer(ctx);
    if let Some(state) = thread::enter(ctx, caller, sp) {
        state.fast_mark = fast::mark(ctx);
        // If `free` is the tail call of the pending call, that call will not return separately.
        thread::clear_pending(state);
        // A function that frees by calling another one gets here twice.
        let is_repeated = state.last_freed == address;
        let is_freed = live::free(ctx, state, caller.tid(), address, || {
            is_inside_free(ctx, state, sp)
        });
        if !is_freed
            && (is_inside_free(ctx, state, sp)
                || caller::is_internal(ctx, sp, |from| caller::is_entered_code(state, from)))
        {
            // An allocator's own frees of unrecorded blocks don't count: glibc empties a thread's cache by them
            // when the thread ends, and a library around an allocator may put a header before each block.
            caller::enter_nested_allocator(ctx, state);
        } else {
            caller::enter_allocator(ctx, state);
            state.last_free_sp = sp;
            if !is_freed && !is_repeated {
                process::count_untracked(caller.tgid());
            }
        }
        state.last_freed = address;
    }
}

/// Whether a free is inside the thread's last free, or is its tail call: it comes from the code of an allocator
/// that was entered since, or is a function of another allocator with the same stack pointer.
///
/// A free has no return probe, so the last one may have returned. If another one follows with the same stack
/// pointer, it is of the same allocator: the program calls no two that pass blocks on to each other.
#[inline(always)]
fn is_inside_free(ctx: &ProbeContext, state: &ThreadState, sp: u64) -> bool {
    if sp == state.last_free_sp {
        return !state.codes[0].contains(caller::place(ctx));
    }
    sp < state.last_free_sp
        && caller::is_internal(ctx, sp, |from| caller::is_entered_code(state, from))
}
