//! What follows the programs of probes: the walk of a recorded call's stack, and the recording of a block that the fast path's code
//! has got.
//!
//! They are programs of their own, which others end with by a tail call. So the kernel verifies each of them once, and not in each of those.

use aya_ebpf::{
    EbpfContext as _,
    macros::uprobe,
    programs::{ProbeContext, RetProbeContext},
};

use super::{arguments::stack_pointer, mapping, next, returned};
use crate::{caller::Caller, java, own_stack, python, raw, stack, thread, v8};

/// Walks the stack of the call that the thread has entered: an allocation that is pending now, or else a mapping.
///
/// It is attached to nothing, so the hit was counted by the program that it follows.
#[uprobe]
pub fn walk_stack(ctx: ProbeContext) -> u32 {
    own_stack::keep(&ctx);
    let Some(caller) = Caller::current() else {
        return 0;
    };
    let Some(state) = caller.state() else {
        return 0;
    };
    stack::capture(&ctx, stack_pointer(&ctx), &mut state.stack, &mut state.walk);
    python::capture(caller, state);
    v8::capture(caller, state);
    java::capture(caller, state);
    raw::capture(&ctx, caller, state);
    if state.sp != 0 {
        thread::walked(&ctx, state);
        if state.returned != 0 {
            next::take_block(&ctx);
        }
    } else {
        mapping::walked(&ctx, caller, state);
    }
    0
}

/// Records the block that the pending call has returned to the fast path's code.
///
/// It is attached to nothing, either.
#[uprobe]
pub fn take_block(ctx: ProbeContext) -> u32 {
    let Some(caller) = Caller::current() else {
        return 0;
    };
    let Some(state) = caller.state() else {
        return 0;
    };
    let block = core::mem::take(&mut state.returned);
    if state.sp != 0 && block != 0 {
        returned::allocated(&RetProbeContext::new(ctx.as_ptr()), caller, state, block);
        thread::clear_pending(state);
    }
    0
}
