//! Entry of `realloc`: the old block leaves the live map before another thread can get its address.

use aya_ebpf::{macros::uprobe, programs::ProbeContext};
use heaptrace_common::wire::call;

use super::alloc::{argument, stack_pointer};
use crate::{
    live, own_stack, process, sample,
    thread::{self, Caller},
};

/// `realloc(pointer, size)`.
#[uprobe]
pub fn realloc_entry(ctx: ProbeContext) -> u32 {
    own_stack::keep(&ctx);
    let Some(caller) = Caller::current() else {
        return 0;
    };
    let sp = stack_pointer(&ctx);
    let (pointer, size) = (argument(&ctx, 0), argument(&ctx, 1));
    let mean = match sample::takes(caller, sp, size) {
        Some(mean) => mean,
        // The block that it frees may be recorded though the one that it makes is not.
        None if is_known(caller, pointer) => 0,
        None => return 0,
    };
    if let Some(state) = thread::enter(&ctx, caller, sp) {
        thread::pend(&ctx, state, sp, call::REALLOC, size, pointer, mean);
        if pointer != 0
            && let Some(block) = live::take(state.process, pointer)
        {
            state.taken = block;
        }
    }
    0
}

/// Whether a recorded block of the calling process stands at an address.
#[inline(always)]
fn is_known(caller: Caller, pointer: u64) -> bool {
    pointer != 0
        && process::known(caller.tgid()).is_some_and(|process| live::knows(process, pointer))
}
