//! Entry of `free`.

use aya_ebpf::{macros::uprobe, programs::ProbeContext};

use super::alloc::{argument, stack_pointer};
use crate::{
    live, own_stack, process, sample,
    thread::{self, Caller},
};

/// `free(pointer)`.
#[uprobe]
pub fn free_entry(ctx: ProbeContext) -> u32 {
    own_stack::keep(&ctx);
    let address = argument(&ctx, 0);
    if address == 0 {
        return 0;
    }
    let Some(caller) = Caller::current() else {
        return 0;
    };
    // Of most frees nothing is to be said where most allocations are not recorded.
    if sample::is_partial()
        && !process::known(caller.tgid()).is_some_and(|process| live::knows(process, address))
    {
        return 0;
    }
    let sp = stack_pointer(&ctx);
    if let Some(state) = thread::enter(&ctx, caller, sp) {
        // A function that ends by jumping to `free` has nothing left to return.
        state.sp = 0;
        // The allocator's own frees of blocks that are not known are its own business: glibc
        // empties a thread's cache by them when the thread ends.
        if !live::free(&ctx, state, caller.tid(), address) && !thread::is_internal(&ctx, sp) {
            process::untracked(caller.tgid());
        }
    }
    0
}
