//! Entry of `free`.

use aya_ebpf::{
    helpers::{bpf_probe_read_user, generated::bpf_get_attach_cookie},
    macros::uprobe,
    programs::ProbeContext,
};
use heaptrace_common::cookie;

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
    let sp = stack_pointer(&ctx);
    if let Some(state) = thread::enter(&ctx, caller, sp) {
        // A function that ends by jumping to `free` has nothing left to return.
        state.sp = 0;
        if !live::free(&ctx, state, caller.tid(), address) && !is_internal(&ctx, sp) {
            process::untracked(caller.tgid());
        }
    }
    0
}

/// Whether the caller stands in the allocator's own file: then a free of a block that is not known
/// is the allocator's own business (glibc empties a thread's cache by it when the thread ends).
#[inline(always)]
fn is_internal(ctx: &ProbeContext, sp: u64) -> bool {
    // SAFETY: the helpers check what they are given; the kernel passes valid registers.
    let (reach, here, caller) = unsafe {
        (
            bpf_get_attach_cookie(ctx.regs.cast()),
            (*ctx.regs).rip,
            bpf_probe_read_user(sp as *const u64).unwrap_or(0),
        )
    };
    let (before, behind) = cookie::reach(reach);
    caller >= here.wrapping_sub(before) && caller < here.wrapping_add(behind)
}
