//! Entry of `realloc`: the old block leaves the live map before another thread can get its address.

use aya_ebpf::{macros::uprobe, programs::ProbeContext};
use heaptrace_common::wire::call;

use super::alloc::{argument, stack_pointer};
use crate::{
    live, own_stack,
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
    if let Some(state) = thread::enter(&ctx, caller, sp) {
        let pointer = argument(&ctx, 0);
        thread::pend(&ctx, state, sp, call::REALLOC, argument(&ctx, 1), pointer);
        if pointer != 0
            && let Some(block) = live::take(state.process, pointer)
        {
            state.taken = block;
        }
    }
    0
}
