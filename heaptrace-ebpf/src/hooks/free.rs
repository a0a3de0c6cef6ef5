//! Entry of the functions that free.

use aya_ebpf::{macros::uprobe, programs::ProbeContext};

use super::{
    arguments::{Arguments, stack_pointer},
    hit,
};
use crate::{
    live, places, process, sample,
    thread::{self, Caller},
};

/// `free(pointer, …)`, and every `operator delete`.
#[uprobe]
pub fn free_entry(ctx: ProbeContext) -> u32 {
    hit(&ctx);
    release(&ctx, Arguments::new(&ctx).get(0));
    0
}

/// `heap_free(heap, pointer)`.
#[uprobe]
pub fn heap_free_entry(ctx: ProbeContext) -> u32 {
    hit(&ctx);
    release(&ctx, Arguments::new(&ctx).get(1));
    0
}

/// Of most frees nothing is to be said where most allocations are not recorded.
#[inline(always)]
fn release(ctx: &ProbeContext, address: u64) {
    if address != 0 && places::may_have_block(address) {
        free(ctx, address);
    }
}

#[inline(never)]
fn free(ctx: &ProbeContext, address: u64) {
    let Some(caller) = Caller::current() else {
        return;
    };
    if sample::is_partial()
        && !process::known(caller.tgid()).is_some_and(|process| live::knows(process, address))
    {
        return;
    }
    let sp = stack_pointer(ctx);
    if let Some(state) = thread::enter(ctx, caller, sp) {
        // A function that ends by jumping to `free` has nothing left to return.
        thread::settle(state);
        // A function that frees by calling another one comes here twice.
        let is_again = state.freed == address;
        state.freed = address;
        // The allocator's own frees of blocks that are not known are its own business: glibc
        // empties a thread's cache by them when the thread ends.
        if !live::free(ctx, state, caller.tid(), address)
            && !is_again
            && !thread::is_internal(ctx, sp)
        {
            process::untracked(caller.tgid());
        }
    }
}
