//! The walk of a recorded call's stack, as a program of its own.
//!
//! The programs of entries end with a tail call of this one. So the kernel verifies the walk once, and not in each of them.

use aya_ebpf::{macros::uprobe, programs::ProbeContext};

use super::{arguments::stack_pointer, mapping};
use crate::{caller::Caller, own_stack, stack, thread};

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
    if state.sp != 0 {
        thread::walked(&ctx, state);
    } else {
        mapping::walked(&ctx, caller, state);
    }
    0
}
