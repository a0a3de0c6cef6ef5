//! Entry of `free`.

use aya_ebpf::{macros::uprobe, programs::ProbeContext};

use super::alloc::{argument, stack_pointer};
use crate::{
    live, process,
    thread::{self, Caller},
};

/// `free(pointer)`.
#[uprobe]
pub fn free_entry(ctx: ProbeContext) -> u32 {
    let address = argument(&ctx, 0);
    if address == 0 {
        return 0;
    }
    let Some(caller) = Caller::current() else {
        return 0;
    };
    if let Some(state) = thread::enter(&ctx, caller, stack_pointer(&ctx))
        && !live::free(&ctx, state, caller.tid(), address)
    {
        process::untracked(caller.tgid());
    }
    0
}
